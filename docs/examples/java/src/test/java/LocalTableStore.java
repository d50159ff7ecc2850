import com.alicloud.openservices.tablestore.SyncClient;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** A JUnit extension: a Table Store for the tests of a class. */
final class LocalTableStore implements BeforeAllCallback, AfterAllCallback {
    private Process server;
    private SyncClient client;

    SyncClient client() {
        return client;
    }

    @Override
    public void beforeAll(ExtensionContext context) throws Exception {
        Path readyFile = Files.createTempDirectory("rowtide-").resolve("ready.json");
        ProcessBuilder builder = new ProcessBuilder(
            "rowtide", "dev", "--ephemeral", "--port", "0", "--ready-file", readyFile.toString());
        // The server ends with this process, however this process ends.
        builder.environment().put("ROWTIDE_PARENT", "" + ProcessHandle.current().pid());
        builder.redirectOutput(ProcessBuilder.Redirect.DISCARD);
        builder.redirectError(readyFile.resolveSibling("log").toFile());
        server = builder.start();
        long deadline = System.nanoTime() + TimeUnit.MINUTES.toNanos(1);
        while (!Files.exists(readyFile)) {
            if (!server.isAlive() || System.nanoTime() > deadline) {
                throw new IllegalStateException("rowtide dev is not ready; its log:\n"
                    + Files.readString(readyFile.resolveSibling("log")));
            }
            Thread.sleep(10);
        }
        JsonObject ready = JsonParser.parseString(Files.readString(readyFile)).getAsJsonObject();
        client = new SyncClient(
            ready.get("endpoint").getAsString(),
            ready.get("access_key_id").getAsString(),
            ready.get("access_key_secret").getAsString(),
            ready.get("instance").getAsString());
    }

    @Override
    public void afterAll(ExtensionContext context) throws Exception {
        if (client != null) {
            client.shutdown();
        }
        server.destroy();
        server.waitFor();
    }
}
