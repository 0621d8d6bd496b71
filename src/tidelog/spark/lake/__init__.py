"""Topics kept in tables: archive, replay, compaction, and reading lake and broker as one."""
