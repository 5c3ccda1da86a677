"""The quota's one state: restored, followed and saved, by the events topic and the state directory."""
