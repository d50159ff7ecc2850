"""The demo of replication: a year's flights through MariaDB, rowtide and three other systems."""
