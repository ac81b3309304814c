"""The configuration of an emulator in the instrument's output: pipes (impairments, queue, link, delay) and rules.

Times without a unit in their name are in ns. docs/reference/emulate.md describes the configuration strings.
"""

from __future__ import annotations

from sojourn.cli.printed.terms import both, each, either, one_of, or_null, record, said

NANOSECONDS = said("ns", "integer")
SPAN = said("ns", "integer?")

LOSS = either(
    record(independent=record(probability="number")),
    record(**{"gilbert-elliott": record(p="number", r="number", h="number", k="number")}),
    record(dwell=record(good=NANOSECONDS, bad=NANOSECONDS)),
    record(**{"four-state": record(p13="number", p31="number", p23="number", p32="number", p14="number")}),
    record(every=record(every="integer", first="integer")),
    record(pattern=record(lost=each("boolean"), file="string")),
    record(**{"time-pattern": record(lost=each("boolean"), file="string")}),
    record(syn=record(count="integer")),
    record(segment=record(index="integer", retransmissions="integer")),
)

IMPAIRMENTS = record(
    loss=each(LOSS),
    corruption=or_null(either(record(**{"bit-error-rate": "number"}), record(**{"one-bit": "number"}))),
    duplication="number?",
)

CODEL = record(target=NANOSECONDS, interval=NANOSECONDS, ecn="boolean")

AQM = either(
    record(
        red=record(
            weight="number",
            min="number",
            max="number",
            max_p="number",
            gentle="boolean",
            in_bytes="boolean",
            ecn="boolean",
        )
    ),
    record(codel=CODEL),
    record(
        pie=record(
            target=NANOSECONDS,
            update=NANOSECONDS,
            alpha="number",
            beta="number",
            max_burst=NANOSECONDS,
            max_ecn="number",
            ecn="boolean",
        )
    ),
)

SCHEDULER = either(
    one_of("fifo", "wf2q"),
    record(drr=record(quantum="integer")),
    record(**{"fq-codel": record(flows="integer", quantum="integer", limit="integer", codel=CODEL)}),
    record(**{"dual-pi2": record(target=NANOSECONDS, step=NANOSECONDS, coupling="number")}),
)

LIMIT = record(slots="integer?", bytes="integer?")

QUEUE = record(
    limit=LIMIT,
    drop=one_of("tail", "head"),
    aqm=or_null(AQM),
    scheduler=SCHEDULER,
    classes=each(record(name="string", weight="integer", limit=or_null(LIMIT), aqm=or_null(AQM))),
)

TRACE = either(
    record(opportunities=record(at=each(NANOSECONDS), period=NANOSECONDS, file="string")),
    record(
        points=record(
            points=each(record(at=NANOSECONDS, rate_bps="integer?", delay=SPAN, loss="number?")),
            period=SPAN,
            file="string",
        )
    ),
)

LINK = record(
    rate_bps="integer?",
    overhead_bytes="integer",
    cell=or_null(record(bytes="integer", overhead_bytes="integer")),
    burst_bytes="integer",
    profile=or_null(record(name="string", loss_level="number", samples=each(NANOSECONDS))),
    trace=or_null(TRACE),
    outages=each(record(at=NANOSECONDS, lasts=NANOSECONDS, every=SPAN)),
)

DISTRIBUTION = either(
    record(uniform=record(spread=NANOSECONDS)),
    record(normal=record(sd=NANOSECONDS)),
    record(exponential=record(mean=NANOSECONDS)),
    record(pareto=record(scale=NANOSECONDS, shape="number")),
    record(gamma=record(shape="number", scale=NANOSECONDS)),
    record(empirical=record(points=each(both("number")), file="string")),
    record(table=record(sd=NANOSECONDS, values=each("integer"), file="string")),
)

DELAY = record(
    constant=NANOSECONDS,
    jitter=or_null(DISTRIBUTION),
    half_life=SPAN,
    order=one_of("kept", "free"),
    reorder=or_null(record(probability="number", gap="integer", by=SPAN)),
    of_ports_=each(record(first="integer", last="integer", constant=NANOSECONDS)),
)

MASK = record(
    source4="integer",
    destination4="integer",
    source6="integer",
    destination6="integer",
    source_port="integer",
    destination_port="integer",
    protocol="boolean",
    macs="boolean",
    vlan="boolean",
    most="integer",
)
"""How a pipe's packets are divided into flows, each with a pipe of its own."""

PIPE = record(
    name="string",
    mask=or_null(MASK),
    before=said("In front of the queue.", IMPAIRMENTS),
    queue=QUEUE,
    link=LINK,
    after=said("Behind the link.", IMPAIRMENTS),
    delay=DELAY,
)

PREFIX = record(address="string", bits="integer")

MATCH = record(
    direction=or_null(one_of("forward", "backward")),
    ethertype="integer?",
    source_mac="string?",
    destination_mac="string?",
    vlan="integer?",
    source=or_null(PREFIX),
    destination=or_null(PREFIX),
    protocol="integer?",
    source_ports=each(both("integer")),
    destination_ports=each(both("integer")),
    dscp="integer?",
    tcp_set="integer",
    tcp_clear="integer",
    length=or_null(both("integer")),
    probability="number?",
)

ACTION = either(one_of("pass", "drop", "count"), record(pipe=record(pipe="string", **{"class": "string?"})))

RULE = record(number="integer", on=MATCH, action=ACTION)

CONFIG = record(seed="integer", memory_bytes="integer", budget=NANOSECONDS, pipes=each(PIPE), rules=each(RULE))
