"""``python -m layoutalg`` is the ``layoutalg`` command."""

from lowering.cli.main import main

if __name__ == "__main__":
    main(prog_name="layoutalg")
