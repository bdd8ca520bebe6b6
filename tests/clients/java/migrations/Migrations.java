import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import liquibase.Contexts;
import liquibase.LabelExpression;
import liquibase.Liquibase;
import liquibase.database.Database;
import liquibase.database.DatabaseFactory;
import liquibase.database.jvm.JdbcConnection;
import liquibase.diff.DiffGeneratorFactory;
import liquibase.diff.DiffResult;
import liquibase.diff.compare.CompareControl;
import liquibase.resource.DirectoryResourceAccessor;
import org.flywaydb.core.Flyway;
import org.flywaydb.core.api.MigrationInfo;
import org.flywaydb.core.api.MigrationState;
import org.jooq.meta.TableDefinition;
import org.jooq.meta.jaxb.SchemaMappingType;
import org.jooq.meta.postgres.PostgresDatabase;

/** Flyway, Liquibase, and what jOOQ's code generator finds, on a primary; what they have made at its standby. */
public final class Migrations {
    private static String address(String port, String schema) {
        return "jdbc:postgresql://127.0.0.1:" + System.getenv(port) + "/" + System.getenv("PGDATABASE") + "?user="
                + System.getenv("PGUSER") + "&currentSchema=" + schema;
    }

    private static void same(Object found, Object wanted, String what) {
        if (!found.equals(wanted)) {
            throw new AssertionError(what + ": expected " + wanted + ", found " + found);
        }
    }

    private static List<String> asked(Connection connection, String sql) throws SQLException {
        List<String> rows = new ArrayList<>();
        try (Statement statement = connection.createStatement(); ResultSet result = statement.executeQuery(sql)) {
            while (result.next()) {
                rows.add(result.getString(1));
            }
        }
        return rows;
    }

    private static void flyway(String migrations) {
        Flyway flyway = Flyway.configure().dataSource(address("PRIMARY", "flyway_app"), null, null)
                .schemas("flyway_app").locations("filesystem:" + migrations + "/flyway")
                .placeholders(Map.of("second", "Grace")).cleanDisabled(false).load();
        same(flyway.migrate().migrationsExecuted, 4, "Flyway's migrations");
        same(flyway.migrate().migrationsExecuted, 0, "Flyway's migrations, again");
        flyway.validate();
        for (MigrationInfo info : flyway.info().all()) {
            same(info.getState(), MigrationState.SUCCESS, info.getDescription());
        }
        same(flyway.info().current().getVersion().toString(), "3", "Flyway's version");
        flyway.clean();
        same(flyway.info().applied().length, 0, "what is left by clean");
        same(flyway.migrate().migrationsExecuted, 4, "Flyway's migrations after clean");
    }

    private static Database liquibaseAt(Connection connection) throws Exception {
        return DatabaseFactory.getInstance().findCorrectDatabaseImplementation(new JdbcConnection(connection));
    }

    private static void liquibase(String migrations) throws Exception {
        try (Connection connection = DriverManager.getConnection(address("PRIMARY", "liquibase_app"))) {
            try (Statement statement = connection.createStatement()) {
                statement.execute("CREATE SCHEMA liquibase_app; CREATE SCHEMA liquibase_other");
            }
            Database database = liquibaseAt(connection);
            Liquibase liquibase = new Liquibase("liquibase.xml", new DirectoryResourceAccessor(new java.io.File(migrations)), database);
            for (int time = 0; time < 2; time++) {
                liquibase.update(new Contexts(), new LabelExpression());
                same(liquibase.listUnrunChangeSets(new Contexts(), new LabelExpression()).size(), 0, "change sets that are left");
            }
            try (Connection second = DriverManager.getConnection(address("PRIMARY", "liquibase_other"))) {
                Database other = liquibaseAt(second);
                new Liquibase("liquibase.xml", new DirectoryResourceAccessor(new java.io.File(migrations)), other).update(new Contexts());
                DiffResult diff = DiffGeneratorFactory.getInstance().compare(database, other, CompareControl.STANDARD);
                same(diff.getMissingObjects().toString() + diff.getUnexpectedObjects(), "[][]", "what two schemas have not in common");
            }
            same(asked(connection, "SELECT email FROM person"), List.of("a@example.org"), "a row");
            liquibase.dropAll();
            same(asked(connection, "SELECT relname FROM pg_class WHERE relnamespace = 'liquibase_app'::regnamespace AND relname NOT LIKE 'databasechange%'"),
                    List.of(), "what is left by dropAll");
        }
    }

    private static void jooq() throws Exception {
        try (Connection connection = DriverManager.getConnection(address("PRIMARY", "flyway_app"));
                PostgresDatabase database = new PostgresDatabase()) {
            database.setConnection(connection);
            database.setConfiguredSchemata(List.of(new SchemaMappingType().withInputSchema("flyway_app")));
            database.setIncludes(new String[] {".*"});
            database.setExcludes(new String[] {});
            List<String> found = new ArrayList<>();
            for (TableDefinition table : database.getTables(database.getSchemata().get(0))) {
                found.add(table.getName() + " " + table.getColumns().size() + " " + table.getIndexes().size());
            }
            found.sort(null);
            same(found, List.of("customer 4 0", "flyway_schema_history 10 1", "orders 3 1", "spent 2 0"), "what jOOQ finds");
        }
    }

    /** The folder with the migrations is the argument. */
    public static void main(String[] arguments) throws Exception {
        java.util.logging.LogManager.getLogManager().reset();
        System.setProperty("org.jooq.no-logo", "true");
        System.setProperty("org.jooq.no-tips", "true");
        flyway(arguments[0]);
        System.out.println("   Flyway");
        liquibase(arguments[0]);
        System.out.println("   Liquibase");
        jooq();
        System.out.println("   jOOQ");
        try (Connection primary = DriverManager.getConnection(address("PRIMARY", "flyway_app"));
                Connection standby = DriverManager.getConnection(address("STANDBY", "flyway_app"));
                Statement here = primary.createStatement();
                Statement there = standby.createStatement()) {
            there.execute("SET freshet.read_after = '" + asked(primary, "SHOW freshet.last_commit").get(0) + "'");
            same(asked(standby, "SELECT name FROM spent ORDER BY name"), List.of("Ada", "Grace"), "at the standby");
            here.execute("DROP SCHEMA flyway_app, liquibase_app, liquibase_other CASCADE");
        }
    }
}
