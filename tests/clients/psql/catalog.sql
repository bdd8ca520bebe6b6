\pset null (null)
set search_path to app, public;
\d customer
\d+ customer
\d orders
\d+ line
\d owing
\d+ owing
\d customer_pkey
\d+ orders_customer
\d ticket
\d+ ticket
\d
\dt
\di
\ds
\dv
\dn
\dn+
\du
\du+
\dg
\l
\dp
\z
\db
\dT
\dx
\dD
\conninfo
\df count
\df+ lower
\dd
\ddp
\dA
\dA+
\dAc btree
\dAf btree
\dAp btree int*
\dF
\dE
\dm
\dL
\dO
\dO "C"
\drds
\dRp
\dRs
\dX
\dy
\des
\det
\dew
\deu
\dl
\dP
\dS pg_am
\d pg_class
\d pg_catalog.pg_settings
\dT+ int4
\sf lower(text)
\sf+ lower(text)
\sv owing
\da sum
\dtS pg_cla*
\d nothing
\dconfig max_connections
\dt+ app.nothing
\dC int2
\do app.*
SELECT * FROM pg_partition_tree('app.orders');
\sf count
\d customer_id_seq
\d orders_id_seq
\ds+ ticket
\dt app.*e*
\dtvs public.*
\h rollback
\encoding
SELECT column_name, column_default, is_identity FROM information_schema.columns WHERE table_schema = 'app' ORDER BY table_name, ordinal_position;
SELECT grantee, privilege_type, is_grantable FROM information_schema.role_table_grants WHERE table_name = 'orders' AND grantee = 'reader' ORDER BY 2;
SELECT a.grantee::regrole, a.privilege_type, a.is_grantable FROM pg_class c, aclexplode(c.relacl) a WHERE c.relname = 'orders' AND a.is_grantable;
