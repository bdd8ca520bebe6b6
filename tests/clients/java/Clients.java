import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Time;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Properties;
import java.util.UUID;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;
import org.postgresql.util.PGInterval;
import org.postgresql.util.PGobject;

/** JDBC against a primary and its standby. */
public final class Clients {
    private static Connection connect(String port, String... properties) throws SQLException {
        Properties all = new Properties();
        all.setProperty("user", "freshet");
        for (int n = 0; n < properties.length; n += 2) {
            all.setProperty(properties[n], properties[n + 1]);
        }
        return DriverManager.getConnection("jdbc:postgresql://127.0.0.1:" + System.getenv(port) + "/freshet", all);
    }

    private static void same(Object found, Object wanted, String what) {
        boolean same = found instanceof byte[] one && wanted instanceof byte[] two
                ? Arrays.equals(one, two)
                : Objects.equals(found, wanted);
        if (!same) {
            throw new AssertionError(what + ": expected " + wanted + ", found " + found);
        }
    }

    private interface Work {
        void run() throws Exception;
    }

    private static SQLException refused(String state, String what, Work work) throws Exception {
        try {
            work.run();
        } catch (SQLException error) {
            same(error.getSQLState(), state, what + " (" + error.getMessage() + ")");
            return error;
        }
        throw new AssertionError(what + ": expected SQLSTATE " + state + ", found no error");
    }

    private static void execute(Connection connection, String... statements) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            for (String sql : statements) {
                statement.execute(sql);
            }
        }
    }

    /** All rows, their columns with | between them. */
    private static List<String> rows(ResultSet results, String... columns) throws SQLException {
        List<String> rows = new ArrayList<>();
        try (results) {
            while (results.next()) {
                List<String> row = new ArrayList<>();
                if (columns.length == 0) {
                    for (int n = 1; n <= results.getMetaData().getColumnCount(); n++) {
                        row.add(results.getString(n));
                    }
                }
                for (String column : columns) {
                    row.add(results.getString(column));
                }
                rows.add(String.join("|", row.stream().map(String::valueOf).toList()));
            }
        }
        return rows;
    }

    private static List<String> query(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            return rows(statement.executeQuery(sql));
        }
    }

    private static void roundTrip(Connection connection, String type, Object... values) throws SQLException {
        execute(connection, "CREATE TABLE kept (n integer PRIMARY KEY, v " + type + ")");
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO kept VALUES (?, ?)");
                PreparedStatement select = connection.prepareStatement("SELECT v FROM kept WHERE n = ?")) {
            for (int n = 0; n < values.length; n++) {
                insert.setInt(1, n);
                insert.setObject(2, values[n]);
                same(insert.executeUpdate(), 1, type);
                // Often enough for a prepared statement of the server, and for results in binary.
                for (int again = 0; again < 8; again++) {
                    select.setInt(1, n);
                    try (ResultSet results = select.executeQuery()) {
                        same(results.next(), true, type + " is there");
                        Class<?> as = values[n] instanceof PGobject ? null : values[n].getClass();
                        Object found = as == null ? results.getObject(1) : as == byte[].class ? results.getBytes(1)
                                : results.getObject(1, as);
                        same(found, values[n], type + ", time " + again);
                    }
                }
            }
            insert.setInt(1, values.length);
            insert.setNull(2, Types.NULL);
            insert.executeUpdate();
            select.setInt(1, values.length);
            try (ResultSet results = select.executeQuery()) {
                results.next();
                same(results.getObject(1), null, type + " null");
                same(results.wasNull(), true, type + " was null");
            }
        }
        execute(connection, "DROP TABLE kept");
    }

    private static PGobject object(String type, String value) throws SQLException {
        PGobject object = new PGobject();
        object.setType(type);
        object.setValue(value);
        return object;
    }

    private static void types(Connection connection) throws Exception {
        roundTrip(connection, "boolean", true, false);
        roundTrip(connection, "smallint", Short.MIN_VALUE, Short.MAX_VALUE);
        roundTrip(connection, "integer", Integer.MIN_VALUE, 0, Integer.MAX_VALUE);
        roundTrip(connection, "bigint", Long.MIN_VALUE, 0L, Long.MAX_VALUE);
        roundTrip(connection, "real", 1.5f, -0.1f, Float.POSITIVE_INFINITY);
        roundTrip(connection, "double precision", 0.1, -1e300, Double.MIN_VALUE);
        roundTrip(connection, "numeric", new BigDecimal("0"), new BigDecimal("-12.340"), new BigDecimal("99999999999999999999.5"),
                new BigDecimal("0.000001"), new BigDecimal("10000"));
        roundTrip(connection, "numeric(10, 3)", new BigDecimal("1234567.890"));
        roundTrip(connection, "text", "", "äöü €", "quote' \" \\ \n", "x".repeat(100_000));
        roundTrip(connection, "varchar(10)", "ten chars!");
        roundTrip(connection, "char(3)", "abc", "a  ");
        roundTrip(connection, "bytea", new byte[0], new byte[] {0, 1, -1});
        roundTrip(connection, "date", LocalDate.of(2024, 2, 29), Date.valueOf("1970-01-01"));
        roundTrip(connection, "time", LocalTime.of(23, 59, 59, 999_999_000), Time.valueOf("12:00:00"));
        roundTrip(connection, "timestamp", LocalDateTime.of(2024, 2, 29, 12, 0, 0, 1000), Timestamp.valueOf("2000-01-01 00:00:00.5"));
        roundTrip(connection, "timestamptz", OffsetDateTime.of(2024, 2, 29, 12, 0, 0, 1000, ZoneOffset.UTC));
        roundTrip(connection, "uuid", new UUID(0, 0), UUID.fromString("12345678-1234-5678-1234-567812345678"));
        roundTrip(connection, "json", object("json", "{\"a\": [1, null]}"));
        roundTrip(connection, "jsonb", object("jsonb", "{\"a\": [1, null]}"));
        roundTrip(connection, "interval", new PGInterval(1, 2, 3, 4, 5, 6.5));
        execute(connection, "CREATE TABLE kept (a integer[], b text[], c numeric[])");
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO kept VALUES (?, ?, ?)")) {
            insert.setArray(1, connection.createArrayOf("integer", new Object[] {1, null, 3}));
            insert.setArray(2, connection.createArrayOf("text", new Object[] {"x", "a \"b\", {c}", null}));
            insert.setArray(3, connection.createArrayOf("numeric", new Object[] {new BigDecimal("1.50")}));
            insert.executeUpdate();
        }
        try (PreparedStatement select = connection.prepareStatement("SELECT * FROM kept")) {
            for (int again = 0; again < 8; again++) {
                try (ResultSet results = select.executeQuery()) {
                    results.next();
                    same(Arrays.asList((Object[]) results.getArray(1).getArray()), Arrays.asList(1, null, 3), "integer[]");
                    same(Arrays.asList((Object[]) results.getArray(2).getArray()), Arrays.asList("x", "a \"b\", {c}", null), "text[]");
                    same(Arrays.asList((Object[]) results.getArray(3).getArray()), List.of(new BigDecimal("1.50")), "numeric[]");
                }
            }
        }
        execute(connection, "DROP TABLE kept");
    }

    private static void batches(Connection connection) throws Exception {
        execute(connection, "CREATE TABLE batch (id bigserial PRIMARY KEY, name text NOT NULL UNIQUE, n integer)");
        connection.setAutoCommit(false);
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO batch (name, n) VALUES (?, ?)",
                Statement.RETURN_GENERATED_KEYS)) {
            for (int n = 0; n < 500; n++) {
                insert.setString(1, "name " + n);
                insert.setInt(2, n);
                insert.addBatch();
            }
            int[] counts = insert.executeBatch();
            same(counts.length, 500, "counts of a batch");
            same(rows(insert.getGeneratedKeys()).size(), 500, "generated keys");
        }
        connection.commit();
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO batch (name, n) VALUES (?, 1)")) {
            for (String name : List.of("new", "name 7", "newer")) {
                insert.setString(1, name);
                insert.addBatch();
            }
            SQLException error = refused("23505", "a batch with a duplicate", insert::executeBatch);
            same(error instanceof BatchUpdateException, true, "a failed batch");
        }
        connection.rollback();
        same(query(connection, "SELECT count(*), sum(n) FROM batch"), List.of("500|124750"), "after a failed batch");
        try (PreparedStatement insert = connection.prepareStatement("INSERT INTO batch (name) VALUES (?)", new String[] {"id"})) {
            insert.setString(1, "keyed");
            insert.executeUpdate();
            try (ResultSet keys = insert.getGeneratedKeys()) {
                keys.next();
                same(keys.getLong("id") > 500, true, "a generated key by its name");
            }
        }
        // Rows in pieces: a portal with a limit.
        try (PreparedStatement select = connection.prepareStatement("SELECT n FROM batch WHERE n IS NOT NULL ORDER BY n")) {
            select.setFetchSize(30);
            int n = 0;
            try (ResultSet results = select.executeQuery()) {
                while (results.next()) {
                    same(results.getInt(1), n++, "rows in pieces");
                }
            }
            same(n, 500, "all rows in pieces");
        }
        Savepoint before = connection.setSavepoint("before");
        execute(connection, "DELETE FROM batch");
        refused("22012", "an error behind a savepoint", () -> execute(connection, "SELECT 1 / 0"));
        refused("25P02", "a failed transaction", () -> execute(connection, "SELECT 1"));
        connection.rollback(before);
        same(query(connection, "SELECT count(*) FROM batch"), List.of("501"), "after rolling back to a savepoint");
        connection.releaseSavepoint(before);
        connection.commit();
        try (Statement updatable = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE);
                ResultSet results = updatable.executeQuery("SELECT id, name, n FROM batch WHERE n < 3 ORDER BY n")) {
            same(results.last(), true, "last");
            same(results.getRow(), 3, "the last row");
            same(results.first(), true, "first");
            results.updateString("name", "changed");
            results.updateRow();
            results.absolute(2);
            results.deleteRow();
            results.moveToInsertRow();
            results.updateLong("id", 9999);
            results.updateString("name", "inserted");
            results.insertRow();
        }
        connection.commit();
        same(query(connection, "SELECT id, name FROM batch WHERE name IN ('changed', 'inserted', 'name 1') ORDER BY id"),
                List.of("1|changed", "9999|inserted"), "an updatable result");
        connection.setAutoCommit(true);
        CopyManager copies = connection.unwrap(PGConnection.class).getCopyAPI();
        same(copies.copyIn("COPY batch (id, name) FROM STDIN (FORMAT csv)", new StringReader("20000,\"a, b\"\n20001,c\n")), 2L, "COPY in");
        StringWriter out = new StringWriter();
        same(copies.copyOut("COPY (SELECT id, name FROM batch WHERE id >= 20000 ORDER BY id) TO STDOUT", out), 2L, "COPY out");
        same(out.toString(), "20000\ta, b\n20001\tc\n", "what was copied");
        execute(connection, "DROP TABLE batch");
    }

    private static void statements(Connection connection) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            refused("57014", "a statement that takes too long", () -> statement.execute("SELECT pg_sleep(60)"));
            statement.setQueryTimeout(0);
            Thread canceller = new Thread(() -> {
                try {
                    Thread.sleep(200);
                    statement.cancel();
                } catch (InterruptedException | SQLException error) {
                    throw new AssertionError(error);
                }
            });
            canceller.start();
            refused("57014", "a cancelled statement", () -> statement.execute("SELECT pg_sleep(60)"));
            canceller.join();
            statement.setMaxRows(2);
            same(rows(statement.executeQuery("SELECT a FROM plain ORDER BY a")), List.of("1", "2"), "setMaxRows");
            statement.setMaxRows(0);
            same(statement.execute("SELECT 1; SELECT 2"), true, "several statements");
            same(statement.getMoreResults(), true, "the second result");
            same(rows(statement.getResultSet()), List.of("2"), "its rows");
            statement.execute("DROP TABLE IF EXISTS nowhere");
            same(statement.getWarnings().getMessage(), "table \"nowhere\" does not exist, skipping", "a warning");
        }
        for (int level : new int[] {Connection.TRANSACTION_READ_COMMITTED, Connection.TRANSACTION_REPEATABLE_READ,
            Connection.TRANSACTION_SERIALIZABLE}) {
            connection.setTransactionIsolation(level);
            same(connection.getTransactionIsolation(), level, "isolation");
        }
        connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
        connection.setSchema("app");
        same(connection.getSchema(), "app", "schema");
        same(query(connection, "SELECT name FROM customer WHERE id = 1"), List.of("Ada"), "found by the schema");
        connection.setSchema("public");
        connection.setReadOnly(true);
        connection.setAutoCommit(false);
        refused("25006", "a read-only transaction", () -> execute(connection, "DELETE FROM plain"));
        connection.rollback();
        connection.setAutoCommit(true);
        connection.setReadOnly(false);
        same(connection.isValid(10), true, "isValid");
        try (PreparedStatement select = connection.prepareStatement("SELECT id, name, balance * ? AS twice FROM app.customer WHERE id = ?")) {
            ResultSetMetaData described = select.getMetaData();
            same(described.getColumnTypeName(1) + "|" + described.getTableName(2) + "|" + described.getSchemaName(2) + "|"
                    + described.getColumnName(3) + "|" + described.getColumnType(3), "serial|customer||twice|" + Types.NUMERIC,
                    "a result's description");
            same(described.isAutoIncrement(1) + "|" + described.isNullable(2), "true|" + ResultSetMetaData.columnNoNulls, "a column");
            same(select.getParameterMetaData().getParameterCount(), 2, "parameters");
            same(select.getParameterMetaData().getParameterTypeName(2), "int4", "a parameter's type");
        }
    }

    private static void metadata(Connection connection) throws Exception {
        DatabaseMetaData metadata = connection.getMetaData();
        same(metadata.getDatabaseProductName(), "PostgreSQL", "product");
        same(metadata.getDatabaseMajorVersion(), 15, "version");
        same(metadata.getSQLKeywords().contains("ilike"), true, "key words");
        same(metadata.getMaxColumnNameLength(), 63, "the longest name");
        same(rows(metadata.getCatalogs(), "TABLE_CAT"), List.of("freshet", "postgres", "template1"), "catalogs");
        same(rows(metadata.getSchemas(null, "app"), "TABLE_SCHEM"), List.of("app"), "schemas");
        same(rows(metadata.getTableTypes()).containsAll(List.of("TABLE", "VIEW", "SEQUENCE")), true, "kinds of tables");
        same(rows(metadata.getTables(null, "app", "%", null), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE", "REMARKS"),
                List.of("app|customer_email_key|INDEX|null", "app|customer_pkey|INDEX|null", "app|line_pkey|INDEX|null",
                        "app|orders_customer|INDEX|null", "app|orders_pkey|INDEX|null", "app|customer_id_seq|SEQUENCE|null",
                        "app|orders_id_seq|SEQUENCE|null", "app|ticket|SEQUENCE|null", "app|customer|TABLE|Those who buy",
                        "app|line|TABLE|null", "app|orders|TABLE|null", "app|owing|VIEW|null"),
                "tables");
        same(rows(metadata.getTables(null, null, "cust%", new String[] {"TABLE"}), "TABLE_NAME"), List.of("customer"), "tables by name");
        same(rows(metadata.getColumns(null, "app", "customer", "%"), "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE",
                "DECIMAL_DIGITS", "NULLABLE", "COLUMN_DEF", "ORDINAL_POSITION", "IS_AUTOINCREMENT"),
                List.of("id|4|serial|10|0|0|nextval('app.customer_id_seq'::regclass)|1|YES", "name|12|text|2147483647|0|0|null|2|NO",
                        "email|12|varchar|40|0|1|null|3|NO", "born|91|date|13|0|1|null|4|NO", "balance|2|numeric|12|2|0|0|5|NO",
                        "created|93|timestamptz|35|6|0|now()|6|NO"),
                "columns");
        same(rows(metadata.getColumns(null, "app", "orders", "id"), "TYPE_NAME", "IS_AUTOINCREMENT"), List.of("int8|YES"), "an identity");
        same(rows(metadata.getPrimaryKeys(null, "app", "line"), "COLUMN_NAME", "KEY_SEQ", "PK_NAME"),
                List.of("order|1|line_pkey", "Number|2|line_pkey"), "primary key");
        same(rows(metadata.getImportedKeys(null, "app", "orders"), "PKTABLE_NAME", "PKCOLUMN_NAME", "FKTABLE_NAME", "FKCOLUMN_NAME",
                "KEY_SEQ", "UPDATE_RULE", "DELETE_RULE", "FK_NAME", "PK_NAME"),
                List.of("customer|id|orders|customer|1|" + DatabaseMetaData.importedKeyNoAction + "|" + DatabaseMetaData.importedKeyCascade
                        + "|orders_customer_fkey|customer_pkey"),
                "imported keys");
        same(rows(metadata.getExportedKeys(null, "app", "orders"), "FKTABLE_NAME", "FKCOLUMN_NAME"), List.of("line|order"), "exported keys");
        same(rows(metadata.getCrossReference(null, "app", "customer", null, "app", "orders"), "FK_NAME"), List.of("orders_customer_fkey"),
                "cross reference");
        same(rows(metadata.getIndexInfo(null, "app", "orders", false, true), "NON_UNIQUE", "INDEX_NAME", "TYPE", "ORDINAL_POSITION",
                "COLUMN_NAME", "ASC_OR_DESC"),
                List.of("f|orders_pkey|3|1|id|A", "t|orders_customer|3|1|customer|A", "t|orders_customer|3|2|id|D"), "indexes");
        same(rows(metadata.getIndexInfo(null, "app", "customer", true, true), "INDEX_NAME"),
                List.of("customer_email_key", "customer_pkey"), "unique indexes");
        List<String> types = rows(metadata.getTypeInfo(), "TYPE_NAME", "DATA_TYPE");
        same(types.containsAll(List.of("int4|4", "text|12", "numeric|2", "timestamptz|93", "bytea|-2", "uuid|1111")), true, "types");
        same(rows(metadata.getBestRowIdentifier(null, "app", "line", DatabaseMetaData.bestRowSession, false), "COLUMN_NAME").size(), 2,
                "what tells rows apart");
        same(rows(metadata.getTablePrivileges(null, "app", "orders"), "GRANTEE", "PRIVILEGE", "IS_GRANTABLE").contains("reader|SELECT|YES"),
                true, "privileges");
        same(rows(metadata.getColumnPrivileges(null, "app", "customer", "id"), "GRANTEE", "PRIVILEGE").contains("freshet|SELECT"), true,
                "privileges of columns");
        same(rows(metadata.getFunctions(null, "pg_catalog", "lower"), "FUNCTION_NAME"), List.of("lower"), "functions");
        rows(metadata.getProcedures(null, null, "%"));
        rows(metadata.getProcedureColumns(null, "pg_catalog", "lower", "%"));
        rows(metadata.getFunctionColumns(null, "pg_catalog", "lower", "%"));
        rows(metadata.getUDTs(null, null, "%", null));
        rows(metadata.getVersionColumns(null, "app", "orders"));
        rows(metadata.getClientInfoProperties());
        same(metadata.getStringFunctions().isEmpty(), false, "functions on strings");
    }

    public static void main(String[] arguments) throws Exception {
        System.out.println("   types");
        for (String[] how : new String[][] {{}, {"binaryTransfer", "false"}, {"prepareThreshold", "1"}, {"prepareThreshold", "-1"},
            {"preferQueryMode", "simple"}, {"preferQueryMode", "extendedForPrepared"}}) {
            try (Connection connection = connect("PRIMARY", how)) {
                types(connection);
            }
        }
        System.out.println("   batches");
        for (String[] how : new String[][] {{}, {"reWriteBatchedInserts", "true"}}) {
            try (Connection connection = connect("PRIMARY", how)) {
                batches(connection);
            }
        }
        System.out.println("   statements");
        try (Connection connection = connect("PRIMARY", "autosave", "conservative")) {
            statements(connection);
        }
        for (String node : List.of("PRIMARY", "STANDBY")) {
            System.out.println("   metadata: " + node.toLowerCase());
            try (Connection connection = connect(node)) {
                metadata(connection);
            }
        }
        // Which node is which.
        String both = "jdbc:postgresql://127.0.0.1:" + System.getenv("STANDBY") + ",127.0.0.1:" + System.getenv("PRIMARY")
                + "/freshet?user=freshet&targetServerType=";
        for (String[] wanted : new String[][] {{"primary", "f"}, {"secondary", "t"}}) {
            try (Connection connection = DriverManager.getConnection(both + wanted[0])) {
                same(query(connection, "SELECT pg_is_in_recovery()"), List.of(wanted[1]), "the " + wanted[0]);
            }
        }
        try (Connection connection = connect("STANDBY")) {
            refused("25006", "a change at a standby", () -> execute(connection, "DELETE FROM plain"));
        }
    }
}
