import jakarta.persistence.CascadeType;
import jakarta.persistence.CollectionTable;
import jakarta.persistence.Column;
import jakarta.persistence.ElementCollection;
import jakarta.persistence.Entity;
import jakarta.persistence.EnumType;
import jakarta.persistence.Enumerated;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.Index;
import jakarta.persistence.LockModeType;
import jakarta.persistence.ManyToMany;
import jakarta.persistence.ManyToOne;
import jakarta.persistence.OneToMany;
import jakarta.persistence.OptimisticLockException;
import jakarta.persistence.PersistenceException;
import jakarta.persistence.SequenceGenerator;
import jakarta.persistence.Table;
import jakarta.persistence.UniqueConstraint;
import jakarta.persistence.Version;
import java.math.BigDecimal;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.hibernate.SessionFactory;
import org.hibernate.annotations.CreationTimestamp;
import org.hibernate.annotations.JdbcTypeCode;
import org.hibernate.cfg.Configuration;
import org.hibernate.exception.ConstraintViolationException;
import org.hibernate.type.SqlTypes;

/** Hibernate: its schema made, updated and validated, entities on a primary, and reads at its standby. */
public final class Sample {
    /** What it says of errors that are expected is not shown. */
    private static final Logger HIBERNATE = Logger.getLogger("org.hibernate");

    enum Rank { JUNIOR, SENIOR }

    @Entity(name = "Team")
    @Table(name = "team", uniqueConstraints = @UniqueConstraint(columnNames = "name"))
    static class Team {
        @Id
        @GeneratedValue(strategy = GenerationType.IDENTITY)
        Long id;
        @Column(length = 60, nullable = false)
        String name;
        @OneToMany(mappedBy = "team", cascade = CascadeType.ALL, orphanRemoval = true)
        List<Member> members = new ArrayList<>();
    }

    @Entity(name = "Member")
    @Table(name = "member", indexes = @Index(columnList = "born, name"))
    static class Member {
        @Id
        @GeneratedValue(strategy = GenerationType.SEQUENCE, generator = "members")
        @SequenceGenerator(name = "members", sequenceName = "member_seq", allocationSize = 20)
        Integer id;
        String name;
        LocalDate born;
        LocalTime starts;
        Duration works;
        UUID key = UUID.randomUUID();
        @Column(precision = 12, scale = 2)
        BigDecimal pay;
        double height;
        boolean active = true;
        byte[] photo;
        @Enumerated(EnumType.STRING)
        Rank rank = Rank.JUNIOR;
        @CreationTimestamp
        Instant made;
        @Version
        int version;
        @JdbcTypeCode(SqlTypes.ARRAY)
        List<String> tags = new ArrayList<>();
        @Column(columnDefinition = "text")
        String note;
        @ManyToOne(optional = false)
        Team team;
        @ManyToMany
        Set<Skill> skills = new HashSet<>();
        @ElementCollection
        @CollectionTable(name = "member_phone")
        Set<String> phones = new HashSet<>();
    }

    @Entity(name = "Skill")
    @Table(name = "skill")
    static class Skill {
        @Id
        UUID id = UUID.randomUUID();
        String name;
    }

    private static void same(Object found, Object wanted, String what) {
        if (!Objects.equals(found, wanted)) {
            throw new AssertionError(what + ": expected " + wanted + ", found " + found);
        }
    }

    private static SessionFactory open(String port, String how) {
        Configuration configuration = new Configuration();
        configuration.addAnnotatedClass(Team.class).addAnnotatedClass(Member.class).addAnnotatedClass(Skill.class);
        configuration.setProperty("hibernate.connection.url", "jdbc:postgresql://127.0.0.1:" + System.getenv(port) + "/freshet");
        configuration.setProperty("hibernate.connection.username", "freshet");
        configuration.setProperty("hibernate.hbm2ddl.auto", how);
        configuration.setProperty("hibernate.hbm2ddl.create_namespaces", "true");
        configuration.setProperty("hibernate.default_schema", "hibernate_app");
        configuration.setProperty("hibernate.jdbc.batch_size", "10");
        configuration.setProperty("hibernate.hbm2ddl.halt_on_error", "true");
        return configuration.buildSessionFactory();
    }

    private static void worked(SessionFactory factory) {
        factory.inTransaction(session -> {
            Skill one = new Skill();
            one.name = "one";
            session.persist(one);
            for (int t = 0; t < 3; t++) {
                Team team = new Team();
                team.name = "team " + t;
                for (int n = 0; n < 25; n++) {
                    Member member = new Member();
                    member.name = "member " + n;
                    member.born = LocalDate.of(1970 + n, 2, 3);
                    member.starts = LocalTime.of(8, n);
                    member.works = Duration.ofMinutes(n);
                    member.pay = new BigDecimal(n + ".50");
                    member.height = n / 4.0;
                    member.photo = new byte[] {0, 1, (byte) n};
                    member.rank = n % 2 == 0 ? Rank.JUNIOR : Rank.SENIOR;
                    member.tags = List.of("t" + n, "x y");
                    member.team = team;
                    member.phones.add("0" + n);
                    if (n < 5) member.skills.add(one);
                    team.members.add(member);
                }
                session.persist(team);
            }
        });
        factory.inTransaction(session -> {
            Member found = session.createQuery("from Member m where m.name = 'member 7' and m.team.name = 'team 1'", Member.class).getSingleResult();
            same(found.pay, new BigDecimal("7.50"), "pay");
            same(found.tags, List.of("t7", "x y"), "tags");
            same(found.works, Duration.ofMinutes(7), "works");
            same(found.starts, LocalTime.of(8, 7), "starts");
            same(found.photo[2], (byte) 7, "photo");
            same(found.rank, Rank.SENIOR, "rank");
            same(found.phones, Set.of("07"), "phones");
            List<Team> teams = session.createQuery("select distinct t from Team t left join fetch t.members order by t.name", Team.class).getResultList();
            same(teams.size() * 100 + teams.get(0).members.size(), 325, "fetched");
            List<Object[]> sums = session.createQuery("select t.name, count(m), sum(m.pay), max(m.born) from Team t join t.members m where m.rank = :rank "
                + "group by t.name having count(m) > 2 order by t.name", Object[].class).setParameter("rank", Rank.JUNIOR).getResultList();
            same(List.of(sums.get(0)[0], sums.get(0)[1], sums.get(0)[2]), List.of("team 0", 13L, new BigDecimal("162.50")), "sums");
            same(session.createQuery("from Member m where exists (select 1 from m.skills s where s.name = 'one') order by m.id", Member.class)
                .setFirstResult(3).setMaxResults(5).getResultList().size(), 5, "a page");
            same(session.createQuery("select m.name, rank() over (partition by m.team order by m.pay desc) from Member m", Object[].class).getResultList().size(), 75, "ranks");
            same(session.createQuery("select m.name from Member m where m.born between :a and :b and lower(m.name) like 'member %' and year(m.born) = 1975", String.class)
                .setParameter("a", LocalDate.of(1975, 1, 1)).setParameter("b", LocalDate.of(1980, 1, 1)).getResultList().size(), 3, "between");
            same(session.createMutationQuery("update Member m set m.pay = m.pay * 2, m.active = false where m.height > 5").executeUpdate(), 12, "update");
            same(session.createMutationQuery("delete from Member m where m.name = 'member 24' and m.skills is empty and m.phones is empty").executeUpdate(), 0, "delete");
            same(session.createNativeQuery("select cast(:n as integer) + 1", Integer.class).setParameter("n", 5).getSingleResult(), 6, "native");
            Member locked = session.find(Member.class, found.id, LockModeType.PESSIMISTIC_WRITE, Map.of("jakarta.persistence.lock.timeout", 0));
            locked.note = "changed";
            session.find(Team.class, 1L, LockModeType.PESSIMISTIC_READ);
        });
        Member stale = factory.fromTransaction(session -> session.createQuery("from Member m where m.note = 'changed'", Member.class).getSingleResult());
        same(stale.version, 1, "version");
        factory.inTransaction(session -> session.find(Member.class, stale.id).note = "changed again");
        try {
            stale.note = "lost";
            factory.inTransaction(session -> session.merge(stale));
            throw new AssertionError("a lost update");
        } catch (OptimisticLockException expected) {
            same(factory.fromTransaction(session -> session.find(Member.class, stale.id).note), "changed again", "note");
        }
        try {
            factory.inTransaction(session -> {
                Team twin = new Team();
                twin.name = "team 1";
                session.persist(twin);
            });
            throw new AssertionError("a duplicate");
        } catch (ConstraintViolationException error) {
            same(error.getSQLState(), "23505", "a duplicate");
        }
        factory.inTransaction(session -> session.remove(session.find(Team.class, 2L)));
        factory.inTransaction(session -> same(session.createQuery("select count(*) from Member", Long.class).getSingleResult(), 50L, "members"));
    }

    public static void main(String[] arguments) {
        HIBERNATE.setLevel(Level.OFF);
        open("PRIMARY", "create-only").close();
        // What is there is updated, and found valid.
        try (SessionFactory factory = open("PRIMARY", "update")) {
            worked(factory);
        }
        open("PRIMARY", "validate").close();
        String lsn;
        try (SessionFactory factory = open("PRIMARY", "none")) {
            lsn = factory.fromSession(session -> session.createNativeQuery(System.getProperty("lsn", "SHOW freshet.last_commit"), String.class).getSingleResult());
        }
        // The standby has the same catalog.
        try (SessionFactory factory = open("STANDBY", "validate")) {
            factory.inSession(session -> {
                session.doWork(connection -> {
                    try (var statement = connection.createStatement()) {
                        if (System.getProperty("lsn") == null) statement.execute("SET freshet.read_after = '" + lsn + "'");
                    }
                });
                same(session.createQuery("select count(m) from Member m join m.team t", Long.class).getSingleResult(), 50L, "at the standby");
            });
            try {
                factory.inTransaction(session -> session.createMutationQuery("delete from Skill").executeUpdate());
                throw new AssertionError("a change at the standby");
            } catch (PersistenceException expected) {
                same(expected.getCause() == null ? "" : ((java.sql.SQLException) expected.getCause()).getSQLState(), "25006", "a change at the standby");
            }
        }
    }
}
