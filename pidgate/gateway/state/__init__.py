"""The one quota state: restored, followed and saved, by the events topic and the state directory."""
