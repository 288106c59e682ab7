"""No test leaves this machine, and only the mark ``data`` shows a test the real sets."""

import os
import socket
import subprocess
import sys
import urllib.request
from urllib.error import URLError

import pytest
from pytest_socket import SocketConnectBlockedError

OUTSIDE = "192.0.2.1"  # TEST-NET-1: documentation only, assigned to nobody (RFC 5737).


@pytest.mark.filterwarnings("ignore:A test tried to use socket")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_socket_to_the_outside_is_refused(family):
    address = OUTSIDE if family == socket.AF_INET else "2001:db8::1"
    with (
        socket.socket(family) as outside,
        pytest.raises(SocketConnectBlockedError, match=address),
    ):
        outside.connect((address, 80))


def test_a_socket_to_this_machine_is_not():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_downloads_go_to_a_proxy_that_nobody_runs(scheme):
    with pytest.raises(URLError, match="refused"):
        urllib.request.urlopen(f"{scheme}://{OUTSIDE}/")


def test_child_processes_cannot_download_either():
    code = f"import urllib.request; urllib.request.urlopen('https://{OUTSIDE}/')"
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert child.returncode == 1
    assert "Connection refused" in child.stderr


def test_the_data_home_is_hidden_from_tests_without_the_mark():
    assert "MANYHANDS_DATA" not in os.environ


@pytest.mark.data
def test_the_data_home_is_shown_to_tests_with_the_mark(data_home):
    assert str(data_home) == os.environ["MANYHANDS_DATA"]
    assert data_home.is_dir()
