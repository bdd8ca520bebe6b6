package main

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"
)

// What GORM makes tables of.
type (
	writer struct {
		ID      uint
		Name    string         `gorm:"size:60;not null;uniqueIndex"`
		Email   *string        `gorm:"index:by_email,where:email IS NOT NULL"`
		Age     int8           `gorm:"check:age_is_positive,age >= 0"`
		Score   float64        `gorm:"type:numeric(8,2);default:1.5"`
		Extra   []byte         `gorm:"type:jsonb;default:'{}'"`
		Active  bool           `gorm:"default:true;comment:whether it writes"`
		Books   []book         `gorm:"constraint:OnDelete:CASCADE"`
		Made    time.Time      `gorm:"autoCreateTime"`
		Version int            `gorm:"default:0"`
		Deleted gorm.DeletedAt `gorm:"index"`
	}
	book struct {
		ID       uint
		WriterID uint   `gorm:"index:idx_book,unique,priority:1"`
		Title    string `gorm:"type:text;index:idx_book,unique,priority:2;index:,expression:lower(title),name:book_lower"`
		Pages    int16
		Subjects []subject `gorm:"many2many:book_subject"`
	}
	subject struct {
		ID   uint
		Name string `gorm:"unique"`
	}
	// The writer's table after a change.
	changedWriter struct {
		writer
		Name string `gorm:"size:200;not null"`
		Note string `gorm:"default:none"`
	}
)

func (changedWriter) TableName() string { return "gorm_app.writers" }

func opened(port string) *gorm.DB {
	db, err := gorm.Open(postgres.Open(address(port)), &gorm.Config{
		NamingStrategy: schema.NamingStrategy{TablePrefix: "gorm_app."}, TranslateError: true,
		Logger: logger.Default.LogMode(logger.Silent),
	})
	check(err, "GORM")
	return db
}

func closed(db *gorm.DB) {
	pool, err := db.DB()
	check(err, "GORM's pool")
	check(pool.Close(), "GORM's pool")
}

func withGORM() {
	db := opened("PRIMARY")
	defer closed(db)
	check(db.Exec("CREATE SCHEMA gorm_app").Error, "schema")
	// The second time there is nothing to be done.
	for range 2 {
		check(db.AutoMigrate(&writer{}, &book{}, &subject{}), "AutoMigrate")
	}
	check(db.AutoMigrate(&changedWriter{}), "AutoMigrate after a change")
	migrator := db.Migrator()
	for what, is := range map[string]bool{
		"a table": migrator.HasTable(&book{}), "a column": migrator.HasColumn(&changedWriter{}, "note"),
		"an index": migrator.HasIndex(&book{}, "idx_book"), "a constraint": migrator.HasConstraint(&writer{}, "age_is_positive"),
		"a reference": migrator.HasConstraint(&writer{}, "Books"),
	} {
		same(is, true, what)
	}
	types, err := migrator.ColumnTypes(&changedWriter{})
	check(err, "ColumnTypes")
	for _, it := range types {
		if it.Name() == "name" {
			length, _ := it.Length()
			nullable, _ := it.Nullable()
			same([]any{length, nullable, it.DatabaseTypeName()}, []any{int64(200), false, "varchar"}, "a column's type")
		}
	}
	indexes, err := migrator.GetIndexes(&book{})
	check(err, "GetIndexes")
	same([]any{len(indexes), indexes[0].Columns()}, []any{1, []string{"writer_id", "title"}}, "GetIndexes")

	subjects := []subject{{Name: "one"}, {Name: "two"}}
	check(db.Create(&subjects).Error, "Create")
	jane := writer{Name: "Jane", Age: 41, Extra: []byte(`{"a": [1]}`)}
	for n := range 6 {
		jane.Books = append(jane.Books, book{Title: fmt.Sprint("Book ", n), Pages: int16(100 * n), Subjects: []subject{subjects[n%2]}})
	}
	check(db.Create(&jane).Error, "Create")
	same([]any{jane.Score, jane.Active}, []any{1.5, true}, "what the database puts in")
	check(db.CreateInBatches([]writer{{Name: "Emily"}, {Name: "Mary", Age: 53}, {Name: "Ann"}}, 2).Error, "CreateInBatches")
	var found writer
	check(db.Preload("Books.Subjects").Preload("Books", func(it *gorm.DB) *gorm.DB { return it.Order("title") }).First(&found, "name = ?", "Jane").Error, "First")
	same([]any{len(found.Books), found.Books[1].Subjects[0].Name, string(found.Extra)}, []any{6, "two", `{"a": [1]}`}, "Preload")
	var sums []struct {
		Name  string
		Pages int
	}
	check(db.Model(&book{}).Select("w.name, sum(pages) AS pages").Joins("JOIN gorm_app.writers w ON w.id = writer_id").Group("w.name").
		Having("sum(pages) > ?", 10).Order("w.name").Scan(&sums).Error, "Group")
	same([]any{len(sums), sums[0].Name, sums[0].Pages}, []any{1, "Jane", 1500}, "Group")
	upsert := clause.OnConflict{Columns: []clause.Column{{Name: "name"}}, DoUpdates: clause.Assignments(map[string]any{"version": gorm.Expr("gorm_app.writers.version + 1")})}
	check(db.Clauses(upsert).Create(&writer{Name: "Jane"}).Error, "an upsert")
	check(db.Clauses(clause.OnConflict{DoNothing: true}).Create(&writer{Name: "Jane"}).Error, "DO NOTHING")
	var changed []book
	check(db.Model(&changed).Clauses(clause.Returning{}).Where("pages > ?", 200).Update("pages", gorm.Expr("pages + ?", 1)).Error, "Update")
	same(len(changed), 3, "RETURNING")
	if err = db.Create(&writer{Name: "Jane"}).Error; !errors.Is(err, gorm.ErrDuplicatedKey) {
		fail("a duplicate: ", err)
	}
	if err = db.Create(&writer{Name: "Poor", Age: -1}).Error; !errors.Is(err, gorm.ErrCheckConstraintViolated) {
		fail("a check: ", err)
	}
	if err = db.Create(&book{WriterID: 77}).Error; !errors.Is(err, gorm.ErrForeignKeyViolated) {
		fail("a reference: ", err)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			check(db.Transaction(func(tx *gorm.DB) error {
				var it writer
				if err := tx.Clauses(clause.Locking{Strength: "UPDATE"}).First(&it, jane.ID).Error; err != nil {
					return err
				}
				return tx.Model(&it).Update("version", it.Version+1).Error
			}), "counting")
		})
	}
	all.Wait()
	check(db.First(&found, jane.ID).Error, "First")
	same(found.Version, 21, "counted by many at once")
	same(db.Transaction(func(tx *gorm.DB) error {
		check(tx.SavePoint("before").Error, "SAVEPOINT")
		check(tx.Model(&book{}).Where("true").Update("title", gorm.Expr("title || '!'")).Error, "Update")
		check(tx.RollbackTo("before").Error, "ROLLBACK TO")
		return tx.Where("name = ?", "Ann").Delete(&writer{}).Error
	}), nil, "a transaction")
	var shown, kept int64
	check(db.Model(&writer{}).Count(&shown).Error, "Count")
	check(db.Unscoped().Model(&writer{}).Count(&kept).Error, "Count")
	same([]int64{shown, kept}, []int64{3, 4}, "deleted softly")
	var lsn string
	check(db.Raw("SHOW freshet.last_commit").Scan(&lsn).Error, "lsn")

	standby := opened("STANDBY")
	defer closed(standby)
	check(standby.Connection(func(tx *gorm.DB) error {
		tx = tx.Session(&gorm.Session{NewDB: true})
		check(tx.Exec("SET freshet.read_after = '"+lsn+"'").Error, "read_after")
		var books int64
		check(tx.Model(&book{}).Where("title LIKE ?", "Book%").Count(&books).Error, "Count")
		same(books, int64(6), "at the standby")
		refused(tx.Create(&[]subject{{Name: "three"}}).Error, "25006", "a change at a standby")
		return nil
	}), "standby")
	check(db.Migrator().DropTable("gorm_app.book_subject", &book{}, &subject{}, &changedWriter{}), "DropTable")
	check(db.Exec("DROP SCHEMA gorm_app").Error, "the end")
}
