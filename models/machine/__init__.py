"""The state machine behind `models/state_machine.py`: its base, and its rules by level."""
