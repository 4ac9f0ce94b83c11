from __future__ import annotations

import grp
import os
import pwd

import pytest

from haxlb.linux.accounts import missing_account

HERE = pwd.getpwuid(os.getuid()).pw_name
GROUP = grp.getgrgid(os.getgid()).gr_name


@pytest.mark.parametrize(
    ("user", "group", "says"),
    [
        ("", "", ""),
        (HERE, "", ""),
        (HERE, GROUP, ""),
        ("no-such-user", "", "there is no user no-such-user"),
        (HERE, "no-such-group", "there is no group no-such-group"),
        ("no-such-user", "no-such-group", "there is no user no-such-user"),
    ],
)
def test_who_is_there(user, group, says):
    assert missing_account(user, group) == says
