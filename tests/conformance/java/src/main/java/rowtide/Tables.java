package rowtide;

import static rowtide.Conformance.*;

import com.alicloud.openservices.tablestore.InternalClient;
import com.alicloud.openservices.tablestore.SyncClient;
import com.alicloud.openservices.tablestore.ClientConfiguration;
import com.alicloud.openservices.tablestore.core.auth.DefaultCredentialProvider;
import com.alicloud.openservices.tablestore.core.auth.V4Credentials;
import com.alicloud.openservices.tablestore.core.auth.DefaultCredentials;
import com.alicloud.openservices.tablestore.model.*;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The life of a table. */
final class Tables {
    static void checkAll() {
        check("table-life", Tables::life);
        check("table-options", Tables::options);
        check("table-errors", Tables::errors);
        check("table-pre-split", Tables::preSplit);
        check("wrong-credentials", Tables::credentials);
        check("signature-v4", Tables::signature);
    }

    private static void life() {
        TableMeta meta = meta();
        meta.addPrimaryKeyColumn("s", PrimaryKeyType.STRING);
        meta.addPrimaryKeyColumn("i", PrimaryKeyType.INTEGER);
        meta.addPrimaryKeyColumn("b", PrimaryKeyType.BINARY);
        meta.addAutoIncrementPrimaryKeyColumn("n");
        long before = System.currentTimeMillis() * 1000;
        String table = table(meta, null);
        that("listed", CLIENT.listTable().getTableNames().contains(table));
        DescribeTableResponse told = CLIENT.describeTable(new DescribeTableRequest(table));
        same(told.getTableMeta().getPrimaryKeyList(), meta.getPrimaryKeyList());
        same(told.getTableOptions().getTimeToLive(), -1);
        same(told.getTableOptions().getMaxVersions(), 5);
        same(told.getTableOptions().getMaxTimeDeviation(), 1L << 33);
        that("no stream", !told.getStreamDetails().isEnableStream());
        that("microseconds", told.getCreationTime() >= before);
        that("increase", told.getReservedThroughputDetails().getLastIncreaseTime() > 0);
        same(told.getRequestId().length(), 36);
        drop(table);
        that("gone", !CLIENT.listTable().getTableNames().contains(table));
    }

    private static void options() {
        String table = table((StreamSpecification) null);
        UpdateTableRequest request = new UpdateTableRequest(table);
        request.setTableOptionsForUpdate(new TableOptions(86400, 7, 1000));
        same(CLIENT.updateTable(request).getTableOptions().getMaxVersions(), 7);
        TableOptions again =
            CLIENT.describeTable(new DescribeTableRequest(table)).getTableOptions();
        same(again.getTimeToLive(), 86400);
        same(again.getMaxTimeDeviation(), 1000L);
        drop(table);
    }

    private static void errors() throws Exception {
        String table = table((StreamSpecification) null);
        TableMeta meta = new TableMeta(table);
        meta.addPrimaryKeyColumn("pk1", PrimaryKeyType.STRING);
        refused(409, "OTSObjectAlreadyExist", "Requested table already exists.",
            () -> CLIENT.createTable(new CreateTableRequest(meta, new TableOptions(-1, 1))));
        refused(400, "OTSParameterInvalid", "Invalid table name: '3t'.", () -> drop("3t"));
        refused(404, "OTSObjectNotExist", "Requested table does not exist.", () -> drop("absent"));
        refused(404, "OTSObjectNotExist", "Requested table does not exist.",
            () -> put("absent", key("a", 1)));
        PrimaryKey one = PrimaryKeyBuilder.createPrimaryKeyBuilder()
            .addPrimaryKeyColumn("pk1", PrimaryKeyValue.fromString("a")).build();
        refused(400, "OTSInvalidPK", "Validate PK size fail. Input: 1, Meta: 2.",
            () -> put(table, one));
        refused(400, "OTSInvalidPK", "Validate PK type fail. Input: VT_STRING, Meta: VT_INTEGER.",
            () -> read(table, key(PrimaryKeyValue.fromString("a"), PrimaryKeyValue.fromString("b"))));
        drop(table);
    }

    private static void preSplit() throws Exception {
        InternalClient internal = new InternalClient(ENDPOINT, KEY_ID, SECRET, INSTANCE);
        List<List<PrimaryKeyValue>> cuts = Arrays.asList(
            Arrays.asList(PrimaryKeyValue.fromString("a"), PrimaryKeyValue.fromString("你")),
            Arrays.asList(PrimaryKeyValue.fromLong(-5), PrimaryKeyValue.fromLong(7)),
            Arrays.asList(PrimaryKeyValue.fromBinary(new byte[] {0}),
                PrimaryKeyValue.fromBinary(new byte[] {(byte) 255, 1})));
        for (List<PrimaryKeyValue> points : cuts) {
            TableMeta meta = meta();
            meta.addPrimaryKeyColumn("k", points.get(0).getType());
            meta.addPrimaryKeyColumn("l", PrimaryKeyType.STRING);
            CreateTableRequestEx request =
                new CreateTableRequestEx(meta, new TableOptions(-1, 1));
            request.setSplitPoints(points);
            internal.createTableEx(request, null).get();
            DescribeTableResponse told =
                CLIENT.describeTable(new DescribeTableRequest(meta.getTableName()));
            List<PrimaryKeyValue> shown = new ArrayList<>();
            for (PrimaryKey split : told.getShardSplits()) {
                same(split.size(), 1);
                shown.add(split.getPrimaryKeyColumn("k").getValue());
            }
            same(shown, points);
            drop(meta.getTableName());
        }
        internal.shutdown();
    }

    private static void credentials() throws Exception {
        String[] texts = {"The AccessKeyID does not exist.", "Signature mismatch.",
            "The instance is not found."};
        for (int wrong = 0; wrong < 3; wrong++) {
            String[] given = {KEY_ID, SECRET, INSTANCE};
            given[wrong] += "x";
            SyncClient stranger = new SyncClient(ENDPOINT, given[0], given[1], given[2]);
            refused(403, "OTSAuthFailed", texts[wrong], stranger::listTable);
            stranger.shutdown();
        }
    }

    private static void signature() throws Exception {
        V4Credentials credentials = V4Credentials.createByServiceCredentials(
            new DefaultCredentials(KEY_ID, SECRET), "cn-hangzhou");
        SyncClient signed = new SyncClient(ENDPOINT, new DefaultCredentialProvider(credentials),
            INSTANCE, new ClientConfiguration(), null);
        String table = table((StreamSpecification) null);
        that("listed", signed.listTable().getTableNames().contains(table));
        drop(table);
        signed.shutdown();
    }
}
