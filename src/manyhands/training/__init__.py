"""The epoch loop, its batches and its callbacks. Nothing here depends on a crowd model."""

from manyhands._lazy import attach_stub, with_former_names

FORMER_NAMES = {
    "InStep": "WeightSync",
    "drawn_in": "default_dtype",
    "heard_by_first": "first_process_callbacks",
    "resumed_alike": "resume_in_all_processes",
}
"""Names that still work, with a warning, and the names that replace them."""

__getattr__, __dir__, __all__ = with_former_names(
    __name__, attach_stub(__name__, __file__), FORMER_NAMES
)
