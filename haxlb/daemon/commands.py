"""What operators ask of a running supervisor: reload, hand over, resume, swap the forwarder's program."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from haxlb.daemon.chronicle import Chronicle
from haxlb.daemon.complaints import errors_counted, errors_in_brief, first_fatal, log_complaints
from haxlb.daemon.control import Answer, Failover, Reload, Resume, SetWeight, Step, Swap
from haxlb.daemon.handover import HandOverProcedure
from haxlb.daemon.live_weights import MOST, find
from haxlb.daemon.messages import Resume as ResumeSpeaker
from haxlb.daemon.messages import SwapProgram
from haxlb.daemon.notifier import Notifier
from haxlb.daemon.processes import Processes, unconfirmed
from haxlb.daemon.reload import ORDER_PATIENCE_S, ReloadProcedure, error_that_removes
from haxlb.daemon.standing import Standing
from haxlb.daemon.supervisor_ports import Findings, RefusedConfig, World
from haxlb.daemon.survey import Survey
from haxlb.model.errors import HaxlbError, HostError
from haxlb.model.status import InstanceStatus

_COMPILING = Step(subject="", step="compile", ok=True, reason="the forwarder is being compiled, traffic flows on")
WITH_ERRORS: Final = 5
"""Exit code of a reload that is in force without what its errors name; of `haxlb check` for the same file, too."""
_AND: Final = "; "
_LATER: Final = "it is done when that process goes on: see haxlb show"
Changing = Reload | Failover | Resume | Swap | SetWeight


class Commands:
    """Carries them out, within `turn`.

    Reload and swap take their time: they read files, compile, and are done one after the other. A hand-over is for the
    moment. It waits for no more than the end of another one, or of the sending of orders (`ORDER_PATIENCE_S`).
    """

    def __init__(
        self,
        world: World,
        *,
        standing: Standing,
        processes: Processes,
        chronicle: Chronicle,
        survey: Survey,
        notifier: Notifier,
        reloader: ReloadProcedure,
        on_peers: Callable[[], None],
        on_addresses: Callable[[], None],
        findings: Findings = (),
    ) -> None:
        """`findings` are of the configuration that haxlb is started with.

        `on_peers` is called when the interfaces or the configured peers may have changed.

        `on_addresses`: when virtual addresses or their interfaces have.
        """
        self._world = world
        self._standing = standing
        self._processes = processes
        self._chronicle = chronicle
        self._survey = survey
        self._notifier = notifier
        self._reloader = reloader
        self._on_peers = on_peers
        self._on_addresses = on_addresses
        self.alone = asyncio.Lock()
        """Held by whoever changes the configuration or the program."""
        self.started = False
        """Every process has been started."""
        self.loaded_at = world.wall.wall()
        """When the configuration in force was loaded, seconds since the epoch."""
        self.config_problem = ""
        """What is wrong with the file as it was read last; empty = nothing."""
        self.config_refused = False
        """Nothing of it is in force: the one before is."""
        self.config_errors = errors_in_brief(findings)
        """Of the file in force: what they name is left out."""
        self._swapping = ""
        """The program of a swap that the checker has not answered in time."""

    @contextlib.asynccontextmanager
    async def turn(self, request: Changing, step: Callable[[Step], None]) -> AsyncIterator[None]:
        """Wait until this may be done; `step` hears of it where that is not now."""
        lock = self.alone if isinstance(request, Reload | Swap | SetWeight) else self._reloader.roles
        if lock.locked():
            step(Step(subject="", step="wait", ok=True, reason=self._occupation(request)))
        async with lock:
            yield

    def _occupation(self, request: Changing) -> str:
        if not self.started:
            return "haxlb is starting"
        if isinstance(request, Reload | Swap | SetWeight):
            return "a reload or a swap is under way"
        return "a hand-over is under way, or a configuration is being put in force"

    async def carry_out(self, request: Changing, step: Callable[[Step], None]) -> Answer:
        """Do it; `step` hears of the steps of a longer one. Raises HaxlbError."""
        match request:
            case Reload():
                return await self._reload(request, step)
            case Failover() | Resume() if not self.started:
                return Answer(ok=False, exit_code=1, message="haxlb is still starting", remedy="see haxlb show")
            case Failover():
                return await self._failover(request, step)
            case Resume():
                return self._resume(request)
            case Swap():
                return await self._swap(step)
            case SetWeight():
                return await self._set_weight(request)

    def confirmed(self, name: str, of: str) -> None:
        """A process has its last order of this class in force: perhaps later than whoever gave it has waited."""
        if of == SwapProgram.__name__:
            swap = self._processes.in_force(name, SwapProgram)
            if swap is not None and swap.program == self._swapping:
                self._swapped(swap.program)
            return
        late = unconfirmed(name, ORDER_PATIENCE_S)
        problems = self.config_problem.split(_AND)
        if late in problems:
            problems.remove(late)
            self.config_problem = _AND.join(problems)
            self._chronicle.note(
                "info", "reload_confirmed", f"the {name} has put the last reload in force", process=name
            )

    async def _reload(self, request: Reload, step: Callable[[Step], None]) -> Answer:
        try:
            loaded = await self._world.config.load()
        except RefusedConfig as refused:
            log_complaints(self._world.log, refused.findings)
            return self._refuse_reload(refused, refused.report, refused.findings)
        log_complaints(self._world.log, loaded.findings)
        doubt = error_that_removes(self._standing.config, loaded.config, loaded.findings)
        if doubt and not request.force:
            doubtful = RefusedConfig(doubt, remedy="correct the file; if it is meant so: `haxlb reload --force`")
            return self._refuse_reload(doubtful, loaded.report, loaded.findings)
        try:
            change, problems = await self._reloader.run(loaded.config, lambda: step(_COMPILING))
        except HostError as problem:
            return self._refuse_reload(problem, loaded.report, loaded.findings)
        self._notifier.refresh(reloaded=True)
        self.config_problem, self.config_refused = _AND.join(problems), False
        self.config_errors = errors_in_brief(loaded.findings)
        self.loaded_at = self._world.wall.wall()
        if change.frames:
            self._on_addresses()
        if change.speaker:
            self._on_peers()
            self._processes.spare.provide()
        errors = errors_counted(loaded.findings)
        said = "; ".join((f"reloaded: {change.summary}", *change.later, *errors))
        self._chronicle.note("info", "reloaded", said, changes=change.summary, problems=self.config_problem)
        return Answer(
            ok=not problems,
            exit_code=1 if problems else WITH_ERRORS if errors else 0,
            message="; ".join((said, *problems)),
            remedy=_LATER if any(map(_is_unconfirmed, problems)) else "",
            report=loaded.report,
            diagnostics=loaded.findings,
        )

    def _refuse_reload(self, problem: HaxlbError, report: str, findings: Findings) -> Answer:
        said = ": ".join((str(problem), *first_fatal(findings)))
        self.config_problem, self.config_refused = said, True
        self._chronicle.note("error", "reload_refused", f"reload refused: {said}", reason=said)
        return Answer(
            ok=False,
            exit_code=problem.exit_code,
            message=f"reload refused, the old configuration stays in force: {problem.message}",
            remedy=problem.remedy,
            report=report,
            diagnostics=findings,
        )

    async def _failover(self, request: Failover, step: Callable[[Step], None]) -> Answer:
        if not self._processes.running("speaker"):
            return Answer(ok=False, exit_code=1, message="the speaker is not running", remedy="see haxlb show")

        def tell(what: Step) -> None:
            self._chronicle.note(
                "info" if what.ok else "warning",
                f"failover_{what.step}",
                f"failover {what.subject or self._standing.config.node}: {what.reason}",
                instance=what.subject,
                reason=what.reason,
            )
            step(what)

        procedure = HandOverProcedure(
            clock=self._world.clock,
            wall=self._world.wall,
            probe=self._world.probe,
            broker=self._world.broker,
            send=lambda message: self._processes.send("speaker", message),
            statuses=self._instances,
            step=tell,
        )
        return await procedure.run(self._standing.config.instances, request.instances, force=request.force)

    async def _instances(self) -> tuple[InstanceStatus, ...]:
        await self._survey.ask("speaker")
        return self._survey.instances

    def _resume(self, request: Resume) -> Answer:
        known = [each.name for each in self._standing.config.instances]
        unknown = [name for name in request.instances if name not in known]
        if unknown:
            remedy = f"there are: {', '.join(known) or 'none'}"
            return Answer(ok=False, exit_code=1, message=f"no instance is called {unknown[0]}", remedy=remedy)
        chosen = ", ".join(each for each in self._standing.yielded if each in (request.instances or known))
        if not chosen:
            return Answer(ok=True, message="no instance was handed over: nothing to resume")
        self._processes.send("speaker", ResumeSpeaker(instances=request.instances))
        self._chronicle.note("info", "resumed", f"resumed: {chosen}", instances=chosen)
        return Answer(ok=True, message=f"resumed: {chosen}")

    async def _swap(self, step: Callable[[Step], None]) -> Answer:
        if not self._processes.running("checker"):
            return Answer(ok=False, exit_code=1, message="there is no data plane: no virtual server is configured")
        step(_COMPILING)
        self._swapping = ""
        program = await self._world.builder.compile(self._standing.config)
        problem = await self._processes.order("checker", SwapProgram(program=program), ORDER_PATIENCE_S)
        if _is_unconfirmed(problem):
            self._swapping = program
            return Answer(ok=False, exit_code=1, message=f"not swapped yet: {problem}", remedy=_LATER)
        if problem:
            return Answer(ok=False, exit_code=1, message=f"not swapped: {problem}")
        self._swapped(program)
        return Answer(ok=True, message="the forwarder was compiled anew and swapped in")

    def _swapped(self, program: str) -> None:
        # Remembered, or the next reload would order the program before it.
        self._standing.program, self._swapping = program, ""
        self._chronicle.clear_alarm("forwarder/not-built", "built and swapped in")
        self._chronicle.note("info", "program_swapped", "forwarder program swapped", program=program)

    async def _set_weight(self, request: SetWeight) -> Answer:
        virtual_server, server = find(self._standing.config, request.virtual_server, request.real_server)
        weights, weight = self._standing.weights, request.weight
        if weight is not None and not 0 <= weight <= MOST:
            return Answer(ok=False, exit_code=2, message=f"a weight is a number from 0 to {MOST}, not {weight}")
        former = weights.get(virtual_server, server)
        subject = f"{virtual_server.name} {server.key}"
        if weight == former:
            said = (
                f"its weight is {weight} already" if weight is not None else "its weight is the configured one already"
            )
            return Answer(ok=True, message=f"{subject}: {said}")
        weights.set(virtual_server, server, weight)
        problem = await self._processes.order("checker", self._standing.checker_orders(), ORDER_PATIENCE_S)
        before = server.weight if former is None else former
        after = f"{server.weight}, as configured" if weight is None else f"{weight} (configured: {server.weight})"
        said = f"{subject}: weight {before} -> {after}"
        self._chronicle.note(
            "warning" if problem else "info",
            "weight_set",
            f"{said}; {problem}" if problem else said,
            virtual_server=virtual_server.name,
            real_server=server.key,
            weight=server.weight if weight is None else weight,
            problem=problem,
        )
        if problem:
            # It stays set: the checker tries again what it could not do, and one that is started anew is told.
            return Answer(
                ok=False, exit_code=1, message=f"{said}, but it is not in force: {problem}", remedy="see haxlb show"
            )
        return Answer(ok=True, message=said)


def _is_unconfirmed(problem: str) -> bool:
    return problem in [unconfirmed(name, ORDER_PATIENCE_S) for name in ("speaker", "checker", "tracker")]
