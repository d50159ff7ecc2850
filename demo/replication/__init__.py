"""The demo of replication: real flights through MariaDB, rowtide and three other systems."""
