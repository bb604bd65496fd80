"""What the subcommands share: options and settings, the console, children, jobs, runs of a job in several ways."""
