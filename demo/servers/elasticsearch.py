"""A real Elasticsearch on loopback, which can be killed and restarted.

Version 7.17 needs Java's security manager, which Java 24 has removed, so it has its own Java. That
and the jars are downloaded once.
"""

from __future__ import annotations

from pathlib import Path

from demo.servers.java_21 import java_21
from demo.servers.search_folder import Distribution
from demo.servers.search_server import SearchServer, java_of, runtime_of

__all__ = ["Elasticsearch"]

# The permissions that netty needs: a module has only those in its folder.
POLICY = """grant {
 permission java.net.SocketPermission "*", "accept,connect,resolve,listen";
 permission java.io.FilePermission "/proc/sys/net/core/somaxconn", "read";
 permission java.lang.reflect.ReflectPermission "suppressAccessChecks";
 permission java.lang.RuntimePermission "accessDeclaredMembers";
 permission java.lang.RuntimePermission "getClassLoader";
 permission java.lang.RuntimePermission "setContextClassLoader";
};
"""


class Elasticsearch(SearchServer):
    """Lacks the languages' analyzers, so its indices have the language ``standard``."""

    distribution = Distribution(
        name="elasticsearch",
        version="7.17.29",
        prefix="es",
        main="org.elasticsearch.bootstrap.Elasticsearch",
        policies={"transport-netty4": POLICY},
    )

    def java(self, home: Path) -> list[str]:
        """Return a Java that still has a security manager."""
        runtime = runtime_of(home, java_21(self._cache_dir))
        return java_of(runtime, ["-Djava.security.manager=allow"])
