"""An engine of ten layers that starts in no time: what the plugin's stories run instead of a real one."""
