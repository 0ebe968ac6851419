"""What each error code means, and an example that raises it: what `shardc help CODE` prints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meaning:
    """`example` is a command, or lines of Python; `where` is what has to be so before it fails."""

    why: str
    example: str
    where: str = ""


def _check(text: str, options: str = "--mesh X=4") -> str:
    return f"shardc check {_quoted(text)} {options}".rstrip()


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text or "$" not in text else f"'{text}'"


_ON_MESH = 'with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):\n    '
_ONES = "jnp.ones((8, 8))"
_GATHER = 'shardc.plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32")'

MEANINGS: dict[str, Meaning] = {
    "SHC001": Meaning(
        "An option is not there, or its value is not spelt as its help shows: `shardc COMMAND --help`.",
        _check("A[I_X] → A[I]", "--mesh X:4"),
    ),
    "SHC101": Meaning(
        "The caret is on the first word that does not fit. Dims are separated by commas, statements by `;` or lines.",
        _check("A[I J] → C[I]"),
    ),
    "SHC102": Meaning(
        "There is no statement to plan; declarations and comments alone are none.", _check("# A[I] → A[I]", "")
    ),
    "SHC103": Meaning("The caret is on the bracket that nothing closes.", _check("A[I, J → C[I]")),
    "SHC104": Meaning(
        "A statement has an expression and a result: `expr → C[…]`, or `C[…] = expr`.", _check("A[I] · B[I]")
    ),
    "SHC105": Meaning(
        "A statement has one result. Write the second as a statement of its own.", _check("A[I] → B[I] → C[I]")
    ),
    "SHC106": Meaning(
        "Often a letter of another alphabet that looks like a Latin one, or an invisible character from a page.",
        _check("A[I] % B[I] → C[I]"),
    ),
    "SHC107": Meaning(
        "A name has at most 64 letters, digits and `_`. Any is free but the notation's own words: declarations, "
        "collectives, `for`, `return`.",
        _check("A[I] → AllGather[I]"),
    ),
    "SHC108": Meaning(
        "Sizes are decimal digits, with no leading zero and no signs between.", _check("dims I=1_024; A[I] → C[I]")
    ),
    "SHC109": Meaning(
        "Files are read as UTF-8, with or without a byte-order mark.",
        "shardc check latin.shard",
        "latin.shard has a byte 0xff",
    ),
    "SHC201": Meaning(
        "A subscript names an axis that the mesh does not have. The nearest one is suggested.", _check("A[I_W] → A[I]")
    ),
    "SHC202": Meaning(
        "The blocks along an axis can be of one dim only, so an axis shards one dim of an array, once.",
        _check("A[I_X, J] · B[J, K_X] → C[I_X, K_X]"),
    ),
    "SHC203": Meaning(
        "A mesh is declared once, and its axes have whole sizes, from 1.", _check("A[I_X] → A[I]", "--mesh X=0")
    ),
    "SHC204": Meaning(
        "Every device gets a block of the same shape, so a dim's size is a multiple of the product of its axes' sizes.",
        _check("A[I_X, J] → A[I, J]", "--mesh X=4 --dims I=6,J=8"),
    ),
    "SHC205": Meaning(
        "Dims are matched by name. For a second dim of the same size use another name.", _check("A[I, I] → C[I]")
    ),
    "SHC206": Meaning("A dim has one size in the whole program.", _check("dims I=4, I=8; A[I] → C[I]", "")),
    "SHC207": Meaning(
        "A result has only dims of its operands; a contracted one is gone.", _check("A[I] · B[I] → C[K]")
    ),
    "SHC208": Meaning(
        "A loop is run once for each index of its dim, so the dim has to have a size.",
        _check("for L { x[B] = relu(x[B]) }"),
    ),
    "SHC209": Meaning("Sizes are whole numbers from 1.", _check("A[I] → C[I]", "--mesh X=4 --dims I=0")),
    "SHC210": Meaning(
        "What is reduced, contracted or added has to be there: check the names, and their order.",
        _check("softmax_K(A[I, J]) → C[I, J]"),
    ),
    "SHC211": Meaning(
        "`·_LOCAL` forbids communication, and these blocks do not fit one another without.",
        _check("A[I, J_X] ·_LOCAL B[J, K] → C[I, K]{U_X}"),
    ),
    "SHC212": Meaning(
        "Only what is linear may be done to partial sums: reduce first, or leave the result unreduced, `{U_X}`.",
        _check("relu(A[I]{U_X}) → C[I]"),
    ),
    "SHC213": Meaning(
        "Types are spelt as here (`bf16`), as in JAX (`bfloat16`), or as in NumPy.",
        _check("A[I] → C[I]", "--dtype bf61"),
    ),
    "SHC214": Meaning(
        "Not every pair of types has a common one, and not every function is of every type: cast, as `f32(A)` does.",
        _check("exp(A: int32[I]) → C[I]"),
    ),
    "SHC215": Meaning(
        "A sum of small integers can leave their range. A cast before it, or a wider result, is safe.",
        _check("A: int8[I, J] · B: int8[J, K] → C[I, K]", "--dims I=64,J=4096,K=64"),
    ),
    "SHC216": Meaning(
        "JAX makes 32-bit arrays of 64-bit ones unless it is told otherwise.",
        'shardc.plan("A[I] → A[I]", mesh={}, dims={"I": 8}, dtype="f64").compile()',
    ),
    "SHC217": Meaning(
        "A bare name is an array from before. The first use of an input has its dims in brackets.",
        _check("A · B[I] → C[I]"),
    ),
    "SHC218": Meaning(
        "A name stays the same array; it may be bound again only in another sharding. Take a new name.",
        _check("A[I] → C[I]; B[I] → C[I]"),
    ),
    "SHC219": Meaning(
        "A collective that is named is checked against its operand and result. A plain `→` finds the right one.",
        _check("AllGather_X A[I_Y, J] → A[I, J]", "--mesh X=2,Y=4"),
    ),
    "SHC220": Meaning(
        "Moves change where a value lies. None makes a whole array into partial sums.",
        f'{_ON_MESH}shardc.reshard({_ONES}, jax.P(unreduced={{"X"}}))',
    ),
    "SHC221": Meaning(
        "A subscript was lost when the text was copied; the error shows what was probably meant.",
        _check("A[IX, J] · B[I] → C[J]"),
    ),
    "SHC222": Meaning(
        "The page on notation lists the functions; those over a dim name it, as `softmax_J(A)`.",
        _check("rleu(A[I]) → C[I]"),
    ),
    "SHC223": Meaning(
        "`shardc chips` lists the chips. A TOML file with the same fields is one, too.",
        _check("A[I_X] → A[I]", "--mesh X=4 --chip v9"),
    ),
    "SHC224": Meaning(
        "The slice has as many chips as the mesh has devices; not every slice exists, and not every axis is on it.",
        _check("A[I_X] → A[I]", "--mesh X=4 --topology v5p:4x4x4"),
    ),
    "SHC226": Meaning(
        "A trip takes one index of the loop's dim, so that dim is not sharded; reshard before the loop.",
        _check("for L { x[B] = x[B] ⊙ w[L_X, B] }", "--mesh X=4 --dims L=4,B=8"),
    ),
    "SHC301": Meaning(
        "JAX has fewer devices than the mesh. Before its first use, jax_num_cpu_devices simulates more.",
        'shardc.plan("A[I_X] → A[I]", mesh={"X": 4096}, dims={"I": 4096}, dtype="f32").compile()(jnp.ones(4096))',
    ),
    "SHC302": Meaning(
        "Simulated devices can be had only before JAX is first used in a process.",
        'shardc run "A[I_X] → A[I]" --mesh X=16',
        "JAX has started with eight devices",
    ),
    "SHC303": Meaning(
        "The array's shape is not what the plan, or the text, says.", f"{_GATHER}.compile()(jnp.ones((4, 4)))"
    ),
    "SHC304": Meaning(
        "The array's type is not the plan's: cast it, or plan with its `dtype`.",
        f"{_GATHER}.compile()(jnp.ones((8, 8), jnp.int8))",
    ),
    "SHC305": Meaning(
        "Along Explicit axes an array lies where its type says, and JAX moves nothing by itself: shardc.reshard does.",
        f'{_ON_MESH}shardc.einsum("A[I_X, J] → A[I, J]", jax.device_put({_ONES}, jax.P("Y")))',
    ),
    "SHC306": Meaning(
        "A plan is for a mesh; make that one, with its axes in order, or plan for the one in force.",
        f"{_ON_MESH}{_GATHER}.compile()({_ONES})",
    ),
    "SHC307": Meaning(
        "Emitted code names what older versions of JAX do not have.",
        'shardc run "A[I_X] → A[I]" --mesh X=4',
        "JAX 0.9.2 is installed",
    ),
    "SHC308": Meaning(
        "The function, or its compilation, raised; the line that did is named.",
        'sharding = jax.NamedSharding(jax.make_mesh((8,), ("X",)), jax.P("X"))\n'
        "shardc.explain(jax.jit(lambda x: x.reshape(3)), jax.device_put(jnp.ones(8), sharding))",
    ),
    "SHC309": Meaning(
        "Arrays are passed in the order in which the text first uses their names.",
        f'{_ON_MESH}shardc.einsum("A[I, J] · B[J, K] → C[I, K]", {_ONES})',
    ),
    "SHC310": Meaning(
        "One of the processes is gone or stuck; all others are ended, since they would wait for it forever.",
        "python examples/many_processes.py examples/matmul.shard --processes 2 --without 1 --timeout 2",
    ),
    "SHC311": Meaning(
        'libtpu is not there: pip install "shardc[tpu]".',
        'shardc verify "A[I_X] → A[I]" --mesh X=4 --topology v5e:2x2',
        "libtpu is not installed",
    ),
    "SHC312": Meaning(
        "Another version of the compiler may print what is not known here; the note names both versions.",
        'shardc verify "A[I_X] → A[I]" --mesh X=4 --topology v5e:2x2',
        "libtpu prints something else",
    ),
    "SHC313": Meaning(
        "pip install 'shardc[report]'.", 'shardc report "A[I_X] → A[I]" --mesh X=4', "drawsvg is not installed"
    ),
    "SHC401": Meaning("A text has at most 64 KiB.", "shardc check big.shard", "big.shard has 70,000 characters"),
    "SHC402": Meaning(
        "A sum or product has at most 1,000 terms. Name a part of it.",
        "shardc check long.shard",
        "long.shard adds 1,001 arrays",
    ),
    "SHC403": Meaning(
        "Brackets are at most 50 deep, loops at most 8. Name a part of the expression.",
        "shardc check deep.shard",
        "deep.shard has 51 brackets in one another",
    ),
    "SHC404": Meaning(
        "A mesh has at most 8 axes.", _check("A[I] → B[I]", "--mesh A=1,B=1,C=1,D=1,E=1,F=1,G=1,H=1,K=1")
    ),
    "SHC405": Meaning("A mesh has at most 2^20 devices.", _check("A[I_X] → A[I]", "--mesh X=1048576,Y=2")),
    "SHC406": Meaning(
        "An array has fewer than 2^63 bytes.", _check("A[I, J] → A[I, J]", "--dims I=4611686018427387904,J=2")
    ),
    "SHC407": Meaning("A size has at most 64 bits.", _check("A[I_X] → A[I]", f"--mesh X=1{'0' * 30}")),
    "SHC409": Meaning(
        "Simulated devices are of one machine, which has room for some hundreds; --topology compiles for a slice.",
        'shardc run "A[I_X] → A[I]" --mesh X=4096',
    ),
    "SHC410": Meaning(
        "The error names the smallest peak that was found. `shardc plan --pareto` shows what memory buys.",
        'shardc plan "A[I_X, J] → A[I, J]" --mesh X=4 --dims I=1024,J=1024 --memory 1MB',
    ),
    "SHC411": Meaning(
        "A run is foreseen before it begins. Smaller --dims check the same plan.",
        'shardc run "A[I, J_X] · B[J_X, K] → C[I, K]" --mesh X=4 --dims I=131072,J=131072,K=131072 --seconds 1',
    ),
    "SHC412": Meaning(
        "A proof goes through every device and every statement; unasked, `emit` and `run` say so and go on.",
        'shardc plan "A[I_X, J] → A[I, J]" --mesh X=65536 --dims I=65536,J=8 --prove',
    ),
    "SHC501": Meaning("An input without brackets is the name of a file.", "shardc check mlp.shrad"),
    "SHC502": Meaning("Name a file in it.", "shardc check ."),
    "SHC503": Meaning(
        "The file is there, and cannot be read: its permissions, or a pipe that nobody writes to.",
        "shardc check pipe.shard",
        "pipe.shard is a pipe that nobody writes to",
    ),
    "SHC504": Meaning(
        "Nothing is overwritten unasked, and nothing is computed first: give --force.",
        'shardc emit "A[I_X] → A[I]" --mesh X=4 -o out.py',
        "out.py exists",
    ),
    "SHC505": Meaning(
        "The output would take the place of what is read.",
        "shardc emit in.shard -o in.shard --force",
        "in.shard is a program",
    ),
    "SHC506": Meaning(
        "The folder is not there, or the disk is full, or whoever reads has gone.",
        'shardc emit "A[I_X] → A[I]" --mesh X=4 -o no/such/folder/out.py',
    ),
    "SHC507": Meaning(
        "The module or file cannot be imported from here, or has no such function.",
        "shardc explain no_such_module:step",
    ),
    "SHC900": Meaning(
        "A fault of ours. The message has a line that replays it: please report it.",
        'shardc plan "A[I_X] → A[I]" --mesh X=4',
        "the planner has a fault",
    ),
}
