"""How an operator wants to be told: FIFOs, mail, and as whom scripts run."""

from __future__ import annotations

from dataclasses import dataclass, field

from haxlb.model.commands import NO_COMMAND, Command

SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyScripts:
    """The operator's commands by state. `any` gets INSTANCE NAME STATE PRIORITY appended (GROUP for a sync group)."""

    master: Command = NO_COMMAND
    backup: Command = NO_COMMAND
    fault: Command = NO_COMMAND
    stop: Command = NO_COMMAND
    deleted: Command = NO_COMMAND
    """Where none is given but `notify_deleted` is, state DELETED is told to `any`; else FAULT is told."""
    tells_deleted: bool = False
    master_rx_lower_pri: Command = NO_COMMAND
    any: Command = NO_COMMAND


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyDue:
    """What the operator's scripts and FIFOs are to be told of an instance or a sync group.

    Speaker to supervisor, in the order in which it happened; also what a NotifyPort takes.
    """

    subject: str
    """INSTANCE or GROUP, as in the FIFO's lines and the arguments of `notify`."""
    name: str
    state: str
    """MASTER, BACKUP, FAULT, STOP, DELETED, MASTER_RX_LOWER_PRI, MASTER_PRIORITY, BACKUP_PRIORITY."""
    priority: int
    """Effective; 0 for groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyFifo:
    """`notify_fifo`, `vrrp_notify_fifo` or `lvs_notify_fifo` with its script."""

    path: str
    user: str = ""
    """Owner of the FIFO; empty = `script_user`."""
    group: str = ""
    script: Command = NO_COMMAND
    """Started with the path appended, it reads the FIFO."""
    vrrp: bool = True
    """Gets lines about instances and sync groups."""
    lvs: bool = True
    """Gets lines about virtual and real servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MailSettings:
    """Mail about changes (`smtp_server` and its companions)."""

    server: str
    """Host name or address."""
    port: int = 25
    helo_name: str = ""
    """Empty = the host's name."""
    connect_timeout_us: int = 30 * SECOND_US
    sender: str = ""
    """notification_email_from."""
    recipients: tuple[str, ...] = ()
    """notification_email."""
    faults: bool = True
    """False (no_email_faults): nobody is mailed about FAULT of instances and groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSettings:
    """What holds for all scripts."""

    user: str = ""
    """`script_user`; empty = keepalived_script where that user exists, else root."""
    group: str = ""
    security: bool = False
    """enable_script_security: nothing is run as root that others than root can change."""
    supplementary_groups: bool = False
    """set_supplementary_groups: scripts run with all groups of their user, not with one only."""
    startup: Command = NO_COMMAND
    startup_timeout_us: int = 10 * SECOND_US
    shutdown: Command = NO_COMMAND
    shutdown_timeout_us: int = 10 * SECOND_US


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationSettings:
    """All that is configured in `global_defs` about telling the operator."""

    fifos: tuple[NotifyFifo, ...] = ()
    fifo_states_on_reload: bool = False
    """fifo_write_vrrp_states_on_reload."""
    mail: MailSettings | None = None
    scripts: ScriptSettings = field(default_factory=ScriptSettings)
    priority_changes: bool = False
    """vrrp_notify_priority_changes."""
