"""Drawn programs, as text, in which one collective moves several arrays, of which each fares in its own way."""

from dataclasses import dataclass

from hypothesis import strategies as st

GROUPS = "replica_groups=[2,4]<=[8]"  # over Y of X=2, Y=4
FATES = ("used", "pieces", "windowed", "cut", "lost", "same", "joined", "askew", "padded", "moved", "skipped")
WHOLE = ("used", "pieces", "windowed")  # in one way or another all of it is
FORMS = ("plain", "started", "async", "fused", "called", "looped", "branched")
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all")
STARTED = ("all-reduce", "all-gather")


@dataclass(frozen=True)
class Moved:
    rows: int
    columns: int
    fate: str

    @property
    def bytes(self):
        return 4 * self.rows * self.columns


@dataclass(frozen=True)
class Combined:
    """One collective of `kind` over Y, of these arrays, done in this form, `trips` times."""

    kind: str
    form: str
    arrays: tuple[Moved, ...]
    trips: int = 1

    @property
    def wire(self):
        """What each array brings to a device, in all trips."""
        by = {"all-reduce": 6, "all-gather": 12, "reduce-scatter": 3, "collective-permute": 4, "all-to-all": 3}
        return [by[self.kind] * array.bytes // 4 * self.trips for array in self.arrays]

    @property
    def is_wasteful(self):
        """A part of it is kept, which could have been brought for less."""
        return self.kind in ("all-reduce", "all-gather")

    def of_fate(self, *fates):
        return sum(wire for wire, array in zip(self.wire, self.arrays, strict=True) if array.fate in fates)

    def text(self):
        inside = _collective(self, [f"%a{n}" for n in range(len(self.arrays))])
        fates = [line for n, array in enumerate(self.arrays) for line in _fate(n, array, self)]
        total = [f"%t{n + 1} = f32[] add(%t{n}, %u{n})" for n in range(len(self.arrays))]
        work = [*inside.lines, *fates, *total]
        build = {"looped": _looped, "branched": _branched}.get(self.form, _straight)
        return (
            "HloModule test, is_scheduled=true, num_partitions=8\n\n"
            "%sum (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n  %y = f32[] parameter(1)\n"
            "  ROOT %s = f32[] add(%x, %y)\n}\n" + inside.computation + build(self, work)
        )


@dataclass(frozen=True)
class _Written:
    lines: list
    computation: str = ""


def combined():
    arrays = st.lists(
        st.builds(Moved, st.sampled_from([4, 8, 16]), st.sampled_from([4, 8]), st.sampled_from(FATES)),
        min_size=1,
        max_size=4,
    )

    def built(kind, form, arrays, trips):
        form = "plain" if form == "started" and kind not in STARTED else form
        arrays = arrays[:1] if kind == "all-to-all" else arrays  # which HLO does for one array at a time
        return Combined(kind, form, tuple(arrays), trips if form == "looped" else 1)

    return st.builds(built, st.sampled_from(KINDS), st.sampled_from(FORMS), arrays, st.integers(1, 7))


def _shape(rows, columns):
    return f"f32[{rows},{columns}]"


def _tuple(shapes):
    return shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"


def _result(array, kind):
    rows = {"all-gather": array.rows * 4, "reduce-scatter": array.rows // 4}.get(kind, array.rows)
    return _shape(rows, array.columns)


def _collective(case, operands):
    """The lines that do it, which leave its results in %r0, %r1, …"""
    had = [_shape(array.rows, array.columns) for array in case.arrays]
    has = [_result(array, case.kind) for array in case.arrays]
    where = "source_target_pairs={{0,1},{1,2},{2,3},{3,0},{4,5},{5,6},{6,7},{7,4}}"
    how = where if case.kind == "collective-permute" else GROUPS
    how += ", dimensions={0}" if case.kind in ("all-gather", "reduce-scatter", "all-to-all") else ""
    how += ", to_apply=%sum" if case.kind in ("all-reduce", "reduce-scatter") else ""
    how += ', metadata={op_name="moved"}'
    inner = [f"%p{n}" for n in range(len(had))]
    parameters = [f"  {name} = {shape} parameter({n})" for n, (name, shape) in enumerate(zip(inner, had, strict=True))]
    head = ", ".join(f"p{n}: {shape}" for n, shape in enumerate(had))
    apart = (
        f"%apart ({head}) -> {_tuple(has)} {{\n"
        + "\n".join([*parameters, f"  ROOT %c = {_tuple(has)} {case.kind}({', '.join(inner)}), {how}"])
        + "\n}\n"
    )
    given = ", ".join(operands)
    both = f"({_tuple(had)}, {_tuple(has)})" if case.kind == "all-gather" else _tuple(has)
    lines = {
        "started": [f"%b = {both} {case.kind}-start({given}), {how}", f"%m = {_tuple(has)} {case.kind}-done(%b)"],
        "async": [
            f"%b = (({', '.join(had)}), {_tuple(has)}, u32[]) async-start({given}), calls=%apart",
            f"%m = {_tuple(has)} async-done(%b)",
        ],
        "fused": [f"%m = {_tuple(has)} fusion({given}), kind=kCustom, calls=%apart"],
        "called": [f"%m = {_tuple(has)} call({given}), to_apply=%apart"],
    }.get(case.form, [f"%m = {_tuple(has)} {case.kind}({given}), {how}"])
    if len(has) == 1:
        lines = [line.replace("%m = ", "%r0 = ") for line in lines]
    else:
        lines += [f"%r{n} = {shape} get-tuple-element(%m), index={n}" for n, shape in enumerate(has)]
    return _Written(lines, apart if case.form in ("async", "fused", "called") else "")


def _fate(n, array, case):
    """What becomes of a result, down to one number that depends on it."""
    shape = _result(array, case.kind)
    rows, columns = (int(size) for size in shape[4:-1].split(","))
    along = 1 if case.kind == "all-gather" or rows < 4 else 0
    part = _shape(rows, columns // 4) if along else _shape(rows // 4, columns)
    step = columns // 4 if along else rows // 4
    at = [f"%k{n} = s32[] constant({step})", f"%at{n} = s32[] multiply(%place, %k{n})"]
    starts = f"%zero, %at{n}" if along else f"%at{n}, %zero"
    last, lines = {
        "used": (f"%w{n}", []),
        "cut": (f"%d{n}", [*at, f"%d{n} = {part} dynamic-slice(%w{n}, {starts}), metadata={{op_name=cut}}"]),
        "lost": (f"%d{n}", [f'%d{n} = {shape} custom-call(%w{n}), custom_call_target="odd"']),
        "same": (f"%d{n}", [f"%d{n} = {_shape(rows, 1)} slice(%w{n}), slice={{[0:{rows}], [0:1]}}"]),
        "pieces": (f"%d{n}", _pieces(n, rows, columns)),
        "windowed": (
            f"%d{n}",
            [
                f"%d{n} = {_shape(rows, columns // 4)} reduce-window(%w{n}, %nil), "
                "window={size=1x4 stride=1x4}, to_apply=%sum"
            ],
        ),
        "skipped": (
            f"%d{n}",
            [
                f"%d{n} = {_shape(rows, columns // 4)} reduce-window(%w{n}, %nil), "
                "window={size=1x2 stride=1x4}, to_apply=%sum"
            ],
        ),
        "askew": (
            f"%d{n}",
            [
                f"%b{n} = {_shape(rows, 1)} broadcast(%nil), dimensions={{}}",
                f"%j{n} = {_shape(rows, columns + 1)} concatenate(%b{n}, %w{n}), dimensions={{1}}",
                f"%d{n} = {shape} slice(%j{n}), slice={{[0:{rows}], [0:{columns}]}}",
            ],
        ),
        "padded": (f"%d{n}", [_padded(n, rows, columns), f"%d{n} = f32[1,1] slice(%j{n}), slice={{[0:1], [0:1]}}"]),
        "moved": (f"%d{n}", [_padded(n, rows, columns), f"%d{n} = f32[1,1] dynamic-slice(%j{n}, %zero, %zero)"]),
        "joined": (
            f"%d{n}",
            [
                f"%j{n} = {_shape(rows, 2 * columns)} concatenate(%w{n}, %w{n}), dimensions={{1}}",
                f"%d{n} = {_shape(rows, 1)} slice(%j{n}), slice={{[0:{rows}], [0:1]}}",
            ],
        ),
    }[array.fate]
    total = f"%u{n} = f32[] reduce({last}, %nil), dimensions={{0,1}}, to_apply=%sum"
    return [f"%w{n} = {shape} tanh(%r{n})", *lines, total]


def _padded(n, rows, columns):
    return f"%j{n} = {_shape(rows + 1, columns + 4)} pad(%w{n}, %nil), padding=0_1x0_4"


def _pieces(n, rows, columns):
    """Two halves, which are used one by one."""
    half = columns // 2
    shape = _shape(rows, half)
    return [
        f"%h{n} = {shape} slice(%w{n}), slice={{[0:{rows}], [0:{half}]}}",
        f"%g{n} = {shape} slice(%w{n}), slice={{[0:{rows}], [{half}:{columns}]}}",
        f"%s{n} = {shape} sort(%h{n}), dimensions={{0}}",
        f"%o{n} = {shape} sort(%g{n}), dimensions={{0}}",
        f"%d{n} = {shape} add(%s{n}, %o{n})",
    ]


PLACE = (
    "%id = u32[] partition-id()",
    "%table = s32[8] constant({0, 1, 2, 3, 0, 1, 2, 3})",
    "%row = s32[1] dynamic-slice(%table, %id), dynamic_slice_sizes={1}",
    "%place = s32[] reshape(%row)",
    "%zero = s32[] constant(0)",
    "%nil = f32[] constant(0)",
)


def _lines(lines):
    return "\n".join(f"  {line}" for line in lines)


def _given(case):
    return [f"%a{n} = {_shape(a.rows, a.columns)} parameter({n})" for n, a in enumerate(case.arrays)]


def _straight(case, work):
    last = f"ROOT %out = f32[] copy(%t{len(case.arrays)})"
    return f"ENTRY %main () -> f32[] {{\n{_lines([*_given(case), *PLACE, '%t0 = f32[] copy(%nil)', *work, last])}\n}}\n"


def _carried(case):
    return ["s32[]", "f32[]", *(_shape(a.rows, a.columns) for a in case.arrays)]


def _taken(case, start=0):
    shapes = _carried(case)
    names = ["%i", "%t0", *(f"%a{n}" for n in range(len(case.arrays)))]
    return [
        f"{name} = {shape} get-tuple-element(%p), index={n}"
        for n, (name, shape) in enumerate(zip(names, shapes, strict=True))
    ][start:]


def _looped(case, work):
    state = f"({', '.join(_carried(case))})"
    arrays = [f"%a{n}" for n in range(len(case.arrays))]
    body = [
        f"%p = {state} parameter(0)",
        *_taken(case),
        *PLACE,
        *work,
        "%one = s32[] constant(1)",
        "%next = s32[] add(%i, %one)",
        f"ROOT %out = {state} tuple(%next, %t{len(case.arrays)}, {', '.join(arrays)})",
    ]
    test = [
        f"%p = {state} parameter(0)",
        "%i = s32[] get-tuple-element(%p), index=0",
        f"%n = s32[] constant({case.trips})",
        "ROOT %less = pred[] compare(%i, %n), direction=LT",
    ]
    entry = [
        *_given(case),
        "%zero = s32[] constant(0)",
        "%nil = f32[] constant(0)",
        f"%start = {state} tuple(%zero, %nil, {', '.join(arrays)})",
        f"%loop = {state} while(%start), condition=%test, body=%body",
        "ROOT %sum.1 = f32[] get-tuple-element(%loop), index=1",
    ]
    return (
        f"%body (p: {state}) -> {state} {{\n{_lines(body)}\n}}\n%test (p: {state}) -> pred[] {{\n{_lines(test)}\n}}\n"
        f"ENTRY %main () -> f32[] {{\n{_lines(entry)}\n}}\n"
    )


def _branched(case, work):
    state = f"({', '.join(_carried(case))})"
    arrays = [f"%a{n}" for n in range(len(case.arrays))]
    yes = [f"%p = {state} parameter(0)", *_taken(case, 1), *PLACE, *work, f"ROOT %y = f32[] copy(%t{len(case.arrays)})"]
    no = [f"%p = {state} parameter(0)", "ROOT %n = f32[] get-tuple-element(%p), index=1"]
    entry = [
        *_given(case),
        "%zero = s32[] constant(0)",
        "%nil = f32[] constant(0)",
        f"%flag = pred[] parameter({len(case.arrays)})",
        f"%start = {state} tuple(%zero, %nil, {', '.join(arrays)})",
        "ROOT %out = f32[] conditional(%flag, %start, %start), true_computation=%yes, false_computation=%no",
    ]
    return (
        f"%yes (p: {state}) -> f32[] {{\n{_lines(yes)}\n}}\n%no (p: {state}) -> f32[] {{\n{_lines(no)}\n}}\n"
        f"ENTRY %main () -> f32[] {{\n{_lines(entry)}\n}}\n"
    )
