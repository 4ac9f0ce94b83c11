"""Commands of the operator to values, and whether those exist who are to run them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from haxlb.model.commands import NO_COMMAND, Command
from haxlb.model.notification import NotifyScripts, ScriptSettings
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.grammar import Kind
from keepalived_compat.section import Entry, Section
from keepalived_compat.source import Word
from keepalived_compat.values import plausible_account

Accounts = Callable[[str, str], str]
"""Says which of a user and a group (empty = not named) does not exist on this host; empty = nothing is wrong."""

Programs = Callable[[tuple[str, ...]], str]
"""Says why this host cannot run a command, whoever runs it; empty = it can."""

Insecurities = Callable[[Command], str]
"""Says why a command, with the user that it will have (empty = the default), is not secure enough for
`enable_script_security`; empty = it is."""

_LOST = {
    "user": "the script is not run",
    "script_user": "scripts that name no user of their own are not run",
    **dict.fromkeys(("notify_fifo", "vrrp_notify_fifo", "lvs_notify_fifo"), "the FIFO is not used"),
}
_SHELL_WORDS = frozenset({">", ">>", "<", "2>", "2>&1", "&>", ">/dev/null", "2>/dev/null", "|", "||", "&", "&&"})
"""Of a shell's language; hardly a program wants one as an argument (`;`: find's -exec does)."""
_FIFOS = ("notify_fifo", "vrrp_notify_fifo", "lvs_notify_fifo")


def command_of(section: Section, name: str) -> Command:
    """The command that a keyword of a section names."""
    found = section.value(name)
    return NO_COMMAND if found is None else Command(argv=found.argv, user=found.user, group=found.group)


def user_and_group(entry: Entry | None, skip: int = 0) -> tuple[str, str]:
    """`USER [GROUP]` after a keyword and `skip` more words; empty where it is not named."""
    words = [each.text for each in entry.words[1 + skip : 3 + skip]] if entry is not None else []
    return (words[0] if words else "", words[1] if len(words) > 1 else "")


def notify_scripts(section: Section) -> NotifyScripts:
    """The scripts of an instance or a sync group by state."""
    return NotifyScripts(
        master=command_of(section, "notify_master"),
        backup=command_of(section, "notify_backup"),
        fault=command_of(section, "notify_fault"),
        stop=command_of(section, "notify_stop"),
        deleted=command_of(section, "notify_deleted"),
        tells_deleted=section.has("notify_deleted"),
        master_rx_lower_pri=command_of(section, "notify_master_rx_lower_pri"),
        any=command_of(section, "notify"),
    )


def check_accounts(root: Section, accounts: Accounts, complaints: Complaints) -> None:
    """Every user and group that is named exists on this host."""
    for words, what in _named_accounts(root):
        wrong = accounts(words[0].text, words[1].text if len(words) > 1 else "")
        # What is no name of a user has been complained of: it was meant as an argument.
        if wrong and plausible_account(words[0].text):
            complaints.error(
                "unknown-account",
                words[0],
                f"{what}: {wrong}; {_LOST.get(what, 'it is not run')}, as with keepalived",
                "`useradd --system --no-create-home NAME` makes one, or leave it to `script_user`",
            )


def check_programs(root: Section, programs: Programs, complaints: Complaints) -> None:
    """Every command that is named can be run on this host. It may be installed later: nothing is lost by a warning."""
    for entry in _scripts(root):
        wrong = programs(entry.value.argv)
        if wrong:
            complaints.warning(
                "missing-program",
                entry.words[1],
                f"{entry.keyword.name}: {wrong}",
                "install it before it is needed, or correct its path",
            )


def check_shell_words(root: Section, complaints: Complaints) -> None:
    """No command is written for a shell: none reads it, as with keepalived 2.2.7."""
    for entry in _scripts(root):
        found = next((each for each in entry.value.argv[1:] if each in _SHELL_WORDS), None)
        if found is not None:
            complaints.warning(
                "shell-word",
                entry.words[1],
                f"{entry.keyword.name}: `{found}` reaches {entry.value.argv[0]} as an argument: no shell reads the"
                " command, as with keepalived",
                "put it into a script",
            )


def check_security(root: Section, settings: ScriptSettings, insecurities: Insecurities, complaints: Complaints) -> None:
    """With `enable_script_security`, nothing that runs as root can be changed by others.

    It is judged at each run anew, and may be put right until then: nothing is lost by a warning.
    """
    if not settings.security:
        return
    for entry in _scripts(root):
        found = entry.value
        user, group = (found.user, found.group) if found.user else (settings.user, settings.group)
        wrong = insecurities(Command(argv=found.argv, user=user, group=group))
        if wrong:
            complaints.warning(
                "insecure-program",
                entry.words[1],
                f"{entry.keyword.name}: {wrong}: enable_script_security does not let it run",
                "make it root's (`chown root`, `chmod go-w`), or name a user that it is to run as",
            )


def _scripts(section: Section) -> Iterator[Entry]:
    """Every entry that names a command, in all blocks."""
    for entry in section.entries:
        if entry.section is not None:
            yield from _scripts(entry.section)
        elif entry.keyword.argument.kind is Kind.SCRIPT and entry.value is not None and entry.value.argv:
            yield entry


def _named_accounts(section: Section) -> Iterator[tuple[tuple[Word, ...], str]]:
    for entry in section.entries:
        keyword = entry.keyword
        if entry.section is not None:
            yield from _named_accounts(entry.section)
        elif keyword.argument.kind is Kind.SCRIPT:
            if entry.value is not None and entry.value.user:
                yield _tail(entry, entry.value.user), keyword.name
        elif keyword.name in ("user", "script_user"):
            yield entry.words[1:3], keyword.name
        elif keyword.name in _FIFOS and len(entry.words) > 2:  # noqa: PLR2004 - the keyword and the path
            yield entry.words[2:4], keyword.name


def _tail(entry: Entry, user: str) -> tuple[Word, ...]:
    """The user and the group: a command in single quotes has any number of words before them."""
    places = [place for place, word in enumerate(entry.words) if word.text == user]
    return entry.words[places[0] : places[0] + 2] if places else entry.words[:1]
