"""Names of options on the command line."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from typer.models import OptionInfo


def option_of(group: type[Any], field: str) -> str:
    """Name of a field's option on the command line."""
    return option_name(field, get_type_hints(group, include_extras=True)[field])


def option_name(name: str, hint: Any) -> str:
    """Name of an option: as it is declared, else that of its field."""
    (info,) = [part for part in get_args(hint) if isinstance(part, OptionInfo)]
    # Within Annotated, typer takes the first name for what would be the default elsewhere.
    names = [info.default, *(info.param_decls or ())]
    declared = [text for text in names if isinstance(text, str) and text.startswith("--")]
    return declared[0].split("/")[0] if declared else f"--{name.replace('_', '-')}"
