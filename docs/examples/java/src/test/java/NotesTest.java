import static org.junit.jupiter.api.Assertions.assertEquals;

import com.alicloud.openservices.tablestore.SyncClient;
import com.alicloud.openservices.tablestore.model.*;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class NotesTest {
    @RegisterExtension
    static final LocalTableStore STORE = new LocalTableStore();

    @Test
    void aNoteIsReadBack() {
        SyncClient client = STORE.client();
        TableMeta meta = new TableMeta("notes");
        meta.addPrimaryKeyColumn("user", PrimaryKeyType.STRING);
        client.createTable(new CreateTableRequest(meta, new TableOptions(-1, 1)));

        PrimaryKey key = PrimaryKeyBuilder.createPrimaryKeyBuilder()
            .addPrimaryKeyColumn("user", PrimaryKeyValue.fromString("ada")).build();
        RowPutChange note = new RowPutChange("notes", key);
        note.addColumn("text", ColumnValue.fromString("hello"));
        client.putRow(new PutRowRequest(note));

        SingleRowQueryCriteria wanted = new SingleRowQueryCriteria("notes", key);
        wanted.setMaxVersions(1);
        Row found = client.getRow(new GetRowRequest(wanted)).getRow();
        assertEquals("hello", found.getLatestColumn("text").getValue().asString());
    }
}
