import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.IOException;
import java.net.SocketTimeoutException;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.postgresql.PGConnection;
import org.postgresql.jdbc.PgConnection;
import org.postgresql.util.PSQLException;

/** HikariCP's pools over pgjdbc that write rows until standard input ends; see pools/main.py for what they print. */
public final class Pools {
    private static final AtomicLong NUMBERS = new AtomicLong(Long.parseLong(System.getenv("BASE")));
    private static volatile boolean stop;

    private static HikariDataSource pool(String url, int size) {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(url);
        config.setUsername("freshet");
        config.setMaximumPoolSize(size);
        config.setConnectionTimeout(1000);
        config.setAutoCommit(false);
        config.setInitializationFailTimeout(-1);
        return new HikariDataSource(config);
    }

    /** The class of an error: the SQLSTATE that the server sent, or what happened to the connection. */
    private static String said(SQLException error, String stage) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof PSQLException known && known.getServerErrorMessage() != null) {
                return known.getSQLState();
            }
            if (cause instanceof SocketTimeoutException && !stage.equals("get")) {
                return "silent";
            }
        }
        return stage.equals("get") ? "none" : "lost";
    }

    private static void work(String name, HikariDataSource pool) {
        while (!stop) {
            long number = NUMBERS.getAndIncrement();
            String token = "-", stage = "get", said = "ok", why = "", session = "-", port = "-";
            long begun = System.nanoTime(), ended = 0;
            Connection connection = null;
            try {
                connection = pool.getConnection();
                PgConnection own = connection.unwrap(PgConnection.class);
                session = Integer.toHexString(System.identityHashCode(own)) + "-" + own.unwrap(PGConnection.class).getBackendPID();
                port = Integer.toString(own.getQueryExecutor().getHostSpec().getPort());
                begun = System.nanoTime();
                stage = "begin";
                try (Statement statement = connection.createStatement();
                        ResultSet rows = statement.executeQuery("SELECT freshet_transaction_token()")) {
                    rows.next();
                    token = rows.getString(1);
                }
                stage = "insert";
                try (PreparedStatement insert = connection.prepareStatement("INSERT INTO pooled VALUES (?)")) {
                    insert.setLong(1, number);
                    insert.executeUpdate();
                }
                stage = "commit";
                connection.commit();
                ended = System.nanoTime();
            } catch (SQLException error) {
                ended = System.nanoTime();
                said = said(error, stage);
                why = error.getMessage() + (error.getCause() == null ? "" : ": " + error.getCause().getMessage());
            }
            if (connection != null) {
                try {
                    // It rolls back what is open.
                    connection.close();
                } catch (SQLException error) {
                    why += " (close: " + error.getMessage() + ")";
                }
            }
            List<String> fields = List.of(name, session, port, Long.toString(number), token, stage, said,
                    Long.toString(begun), Long.toString(ended), why.replaceAll("\\s+", " "));
            synchronized (System.out) {
                System.out.println(String.join("\t", fields));
            }
        }
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        List<String> hosts = new ArrayList<>();
        for (String port : System.getenv("HOSTS").split(",")) {
            hosts.add("127.0.0.1:" + port);
        }
        String more = "?sslmode=disable&connectTimeout=1&loginTimeout=1";
        // Seconds.
        String silence = "&socketTimeout=" + System.getenv("SILENCE");
        String several = "jdbc:postgresql://" + String.join(",", hosts) + "/freshet" + more + silence + "&targetServerType=primary";
        String routed = "jdbc:postgresql://127.0.0.1:" + System.getenv("ROUTED") + "/freshet" + more + "&options=-c%20freshet.route=primary";
        List<Thread> threads = new ArrayList<>();
        List<HikariDataSource> pools = new ArrayList<>();
        for (Object[] kind : new Object[][] {{"pgjdbc", several, 8}, {"pgjdbc, routed", routed, 2}}) {
            HikariDataSource pool = pool((String) kind[1], (int) kind[2]);
            pools.add(pool);
            for (int worker = 0; worker < (int) kind[2]; worker++) {
                threads.add(new Thread(() -> work((String) kind[0], pool)));
            }
        }
        threads.forEach(Thread::start);
        while (System.in.read() >= 0) {
            // Nothing is expected before its end.
        }
        stop = true;
        for (Thread thread : threads) {
            thread.join();
        }
        pools.forEach(HikariDataSource::close);
    }
}
