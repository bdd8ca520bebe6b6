import { PrismaPg } from '@prisma/adapter-pg'
import { defineConfig } from 'prisma/config'
import pg from 'pg'

// The adapter knows no "char", which is in what the schema engine asks; it is to read it as text.
pg.types.builtins.VARBIT = 18

export default defineConfig({
  experimental: { adapter: true },
  engine: 'js',
  schema: 'schema.prisma',
  // With the whole address as one text, the adapter takes its own database for the shadow database.
  adapter: async () => new PrismaPg({
    host: '127.0.0.1', port: Number(process.env.PORT), user: process.env.PGUSER, database: process.env.DATABASE, idleTimeoutMillis: 100,
  }),
})
