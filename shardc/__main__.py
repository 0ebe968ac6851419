"""`python -m shardc`, and the command `shardc`."""

try:
    from shardc.io.streams import prepare
except KeyboardInterrupt:
    raise SystemExit(130) from None


def main() -> None:
    """The entry point. It answers interrupts before the rest is imported, which takes longer than many a command."""
    prepare()
    from shardc.cli import main as run

    run()


if __name__ == "__main__":
    main()
