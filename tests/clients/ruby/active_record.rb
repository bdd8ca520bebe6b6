# ActiveRecord, as Rails uses it: migrations, models, the dumped schema, and reads at the standby.
require 'active_record'
require 'fileutils'
require 'stringio'
require 'tmpdir'

def same(found, wanted, what)
  raise "#{what}: expected #{wanted.inspect}, found #{found.inspect}" unless found == wanted
end

def refused(kind, what)
  yield
rescue kind
  nil
else
  raise "#{what}: #{kind} was expected"
end

def settings(port, more = {})
  { adapter: 'postgresql', host: '127.0.0.1', port: ENV.fetch(port).to_i, username: 'freshet', database: 'freshet',
    schema_search_path: 'rails_app', pool: 4, min_messages: 'warning' }.merge(more)
end

class CreateBlogs < ActiveRecord::Migration[6.1]
  def change
    enable_extension 'plpgsql'
    create_table :authors do |t|
      t.string :name, null: false, limit: 80, comment: 'in full'
      t.jsonb :settings, null: false, default: {}
      t.timestamps
      t.index :name, unique: true
      t.index 'lower(name)', name: 'authors_by_lower_name'
    end
    create_table :posts, id: :uuid, default: -> { 'gen_random_uuid()' } do |t|
      t.references :author, null: false, foreign_key: { on_delete: :cascade }
      t.text :body, default: ''
      t.decimal :price, precision: 8, scale: 2
      t.string :tags, array: true, default: []
      t.integer :state, limit: 2, default: 0
      t.boolean :listed, default: true, null: false
      t.date :day
      t.binary :picture
      t.datetime :published_at, precision: 6
      t.index %i[author_id day], order: { day: :desc }, where: 'listed'
      t.check_constraint 'price >= 0', name: 'price_is_positive'
    end
    create_join_table :authors, :posts, table_name: :friends
  end
end

class ChangeBlogs < ActiveRecord::Migration[6.1]
  disable_ddl_transaction!

  def change
    add_column :posts, :title, :string, default: 'Untitled', null: false
    rename_column :posts, :body, :content
    change_column_null :posts, :day, true
    reversible do |way|
      way.up { change_column :posts, :state, :bigint, using: 'state::bigint' }
      way.down { change_column :posts, :state, :integer, limit: 2 }
    end
    add_index :posts, :title, algorithm: :concurrently
    add_foreign_key :friends, :authors, column: :author_id, validate: false
  end
end

class Author < ActiveRecord::Base
  has_many :posts, dependent: :destroy
  validates :name, uniqueness: true
  store_accessor :settings, :theme, :n
end

class Post < ActiveRecord::Base
  belongs_to :author, touch: true
  enum state: { draft: 0, public: 1 }, _prefix: true
  scope :cheap, -> { where('price < ?', 3) }
end

def migrated
  ActiveRecord::Base.connection.create_schema('rails_app')
  ActiveRecord::Migration.verbose = false
  ActiveRecord::SchemaMigration.create_table
  ActiveRecord::InternalMetadata.create_table
  ActiveRecord::InternalMetadata[:environment] = 'test'
  migrations = [CreateBlogs.new('CreateBlogs', 1), ChangeBlogs.new('ChangeBlogs', 2)]
  run = ->(way) { ActiveRecord::Migrator.new(way, migrations, ActiveRecord::SchemaMigration).migrate }
  run.call(:up)
  run.call(:down)
  run.call(:up)
  same(ActiveRecord::SchemaMigration.all_versions, %w[1 2], 'versions')
  dumped = StringIO.new
  ActiveRecord::SchemaDumper.dump(ActiveRecord::Base.connection, dumped)
  [
    'create_table "posts", id: :uuid, default: -> { "gen_random_uuid()" }',
    't.string "name", limit: 80, null: false, comment: "in full"', 't.jsonb "settings", default: {}, null: false',
    't.string "tags", default: [], array: true', 't.decimal "price", precision: 8, scale: 2', 't.bigint "state", default: 0',
    't.index ["author_id", "day"], name: "index_posts_on_author_id_and_day", order: { day: :desc }, where: "listed"',
    't.index "lower((name)::text)", name: "authors_by_lower_name"', 't.index ["name"], name: "index_authors_on_name", unique: true',
    'add_foreign_key "posts", "authors", on_delete: :cascade', 't.check_constraint "price >= (0)::numeric", name: "price_is_positive"'
  ].each { |line| raise "the dumped schema lacks #{line}:\n#{dumped.string}" unless dumped.string.include?(line) }
  loaded(dumped.string)
end

# What db:create, db:schema:load, db:structure:dump and db:drop do: another database gets the schema, and says the same of it.
def loaded(dumped)
  config = ActiveRecord::DatabaseConfigurations::HashConfig.new('test', 'primary', settings('PRIMARY', database: 'rails_made'))
  tasks = ActiveRecord::Tasks::PostgreSQLDatabaseTasks.new(config)
  tasks.create
  refused(ActiveRecord::DatabaseAlreadyExists, 'a database that is made twice') { tasks.create }
  ActiveRecord::Base.establish_connection(config)
  connection = ActiveRecord::Base.connection
  connection.create_schema('rails_app')
  Dir.mktmpdir do |folder|
    File.write("#{folder}/schema.rb", dumped)
    ActiveRecord::Schema.verbose = false
    load "#{folder}/schema.rb"
    again = StringIO.new
    ActiveRecord::SchemaDumper.dump(connection, again)
    same(again.string, dumped, 'the schema, dumped again')
    tasks.structure_dump("#{folder}/structure.sql", nil)
    structure = File.read("#{folder}/structure.sql")
    same(structure.scan(/^CREATE TABLE rails_app\.(\w+)/).flatten.sort, %w[ar_internal_metadata authors friends posts schema_migrations], 'the structure')
  end
  ActiveRecord::Base.remove_connection
  tasks.drop
  ActiveRecord::Base.establish_connection(settings('PRIMARY'))
end

def worked
  ada = Author.create!(name: 'Ada', settings: { theme: 'dark', n: 1 })
  Author.insert_all([{ name: 'Grace', created_at: Time.now, updated_at: Time.now }, { name: 'Ada', created_at: Time.now, updated_at: Time.now }])
  same(Author.count, 2, 'insert_all leaves out what is there')
  Author.upsert({ name: 'Grace', settings: { n: 7 }, created_at: Time.now, updated_at: Time.now }, unique_by: :name)
  same(Author.find_by(name: 'Grace').n, 7, 'upsert')
  moment = Time.utc(2024, 2, 29, 12, 30, 15.25r)
  12.times do |n|
    ada.posts.create!(title: "Post #{n}", content: 'x' * n, price: n / 2r, tags: ["t#{n % 3}", 'a "b"'], day: Date.new(2024, 1, 1) + n,
                      picture: [0, 255, n].pack('C*'), published_at: moment, state: n.even? ? :public : :draft)
  end
  post = Post.find_by!(title: 'Post 4')
  same([post.price, post.tags, post.day, post.picture.bytes, post.published_at, post.state],
       [2, ['t1', 'a "b"'], Date.new(2024, 1, 5), [0, 255, 4], moment, 'public'], 'a post')
  same(Post.state_public.cheap.order(:title).pluck(:title), ['Post 0', 'Post 2', 'Post 4'], 'scopes')
  same(Author.includes(:posts).order(:id).map { |it| it.posts.size }, [12, 0], 'includes')
  same(Author.left_joins(:posts).group(:name).order(:name).count('posts.id'), { 'Ada' => 12, 'Grace' => 0 }, 'grouped')
  same(Author.eager_load(:posts).where(posts: { listed: true }).distinct.order('authors.name').limit(1).map(&:name), ['Ada'], 'eager_load')
  same(Post.where("tags @> ARRAY[?]::varchar[]", ['t1']).count, 4, '@>')
  same(Author.where("settings ->> 'theme' = ?", 'dark').pick(:id), ada.id, '->>')
  same(Post.where(day: Date.new(2024, 1, 3)..Date.new(2024, 1, 5)).sum(:price), 4.5.to_d, 'sum')
  same(Post.in_batches(of: 5).map(&:size), [5, 5, 2], 'batches')
  same(Post.where(title: 'Post 1').exists?, true, 'exists?')
  same(Post.cheap.update_all(['price = price + ?', 10]), 6, 'update_all')
  refused(ActiveRecord::RecordNotUnique, 'a duplicate') { Author.new(name: 'Ada').save!(validate: false) }
  refused(ActiveRecord::RecordInvalid, 'a duplicate that is looked for') { Author.create!(name: 'Ada') }
  refused(ActiveRecord::InvalidForeignKey, 'a reference') { Post.new(author_id: 77).save!(validate: false) }
  refused(ActiveRecord::StatementInvalid, 'a check') { Post.where(title: 'Post 1').update_all(price: -1) }
  Author.transaction do
    ada.with_lock('FOR NO KEY UPDATE') { ada.update!(theme: 'light') }
    Author.transaction(requires_new: true) do
      Post.delete_all
      raise ActiveRecord::Rollback
    end
  end
  same([Post.count, ada.reload.theme], [12, 'light'], 'a savepoint')
  Author.transaction(isolation: :serializable) { same(Author.lock('FOR SHARE').find(ada.id), ada, 'FOR SHARE') }
  threads = Array.new(4) do
    Thread.new { ActiveRecord::Base.connection_pool.with_connection { 5.times { Author.where(id: ada.id).update_all("settings = jsonb_set(settings, '{n}', ((settings ->> 'n')::int + 1)::text::jsonb)") } } }
  end
  threads.each(&:join)
  same(ada.reload.settings['n'], 21, 'counted by many at once')
  connection = ActiveRecord::Base.connection
  same(connection.tables.sort, %w[ar_internal_metadata authors friends posts schema_migrations], 'tables')
  same(connection.primary_key('posts'), 'id', 'primary key')
  same(connection.foreign_keys('posts').map(&:to_table), ['authors'], 'foreign keys')
  other = Thread.new { ActiveRecord::Base.connection_pool.with_connection { |mine| mine.get_advisory_lock(42) && mine.release_advisory_lock(42) } }
  same(other.value, true, 'advisory lock of another session')
  same(connection.get_advisory_lock(42) && connection.release_advisory_lock(42), true, 'advisory lock')
  same(Post.where(title: 'x').explain.empty?, false, 'EXPLAIN')
  connection.select_value(ENV.fetch('LSN', 'SHOW freshet.last_commit'))
end

ActiveRecord::Base.establish_connection(settings('PRIMARY'))
migrated
lsn = worked
class Reader < ActiveRecord::Base
  self.abstract_class = true
end
class SeenPost < Reader
  self.table_name = 'posts'
end
Reader.establish_connection(settings('STANDBY', prepared_statements: false))
Reader.connection.execute("SET freshet.read_after = '#{lsn}'") unless ENV['LSN']
same(SeenPost.where('price >= 10').count, 6, 'at the standby')
refused(ActiveRecord::StatementInvalid, 'a change at the standby') { SeenPost.delete_all } unless ENV['LSN']
ActiveRecord::Base.connection.drop_schema('rails_app')
