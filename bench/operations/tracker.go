// What an error tracker (Errbit) asks when somebody types a word: five patterns over its problems, however they are
// written, a count, and the first page.

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	trackerProblems = 2000
	trackerWords    = 2000
	trackerPage     = 20
)

// trackerWord is one of the words that messages are made of.
func trackerWord(number int) string {
	random := rand.New(rand.NewPCG(1, uint64(number)))
	word := []byte("w")
	for range 7 {
		word = append(word, byte('a'+random.IntN(26)))
	}
	return string(word)
}

func trackerProblem(number int) bson.D {
	random := rand.New(rand.NewPCG(2, uint64(number)))
	words := make([]string, 6)
	for at := range words {
		words[at] = trackerWord(random.IntN(trackerWords))
	}
	hosts := bson.D{}
	for host := range 5 {
		hosts = append(hosts, bson.E{Key: fmt.Sprintf("h%d", host), Value: random.IntN(50)})
	}
	classes := []string{"NoMethodError", "ArgumentError", "Timeout::Error", "ActiveRecord::RecordNotFound"}
	return bson.D{
		{Key: "_id", Value: number}, {Key: "app_id", Value: number % 10},
		{Key: "fingerprint", Value: fmt.Sprintf("%032x", random.Uint64())},
		{Key: "app_name", Value: fmt.Sprintf("app-%d", number%10)}, {Key: "environment", Value: "production"},
		{Key: "error_class", Value: classes[number%4]}, {Key: "where", Value: fmt.Sprintf("orders_%d#update", number%97)},
		{Key: "message", Value: fmt.Sprintf("undefined method `%s_%s' for %s", words[0], words[1], strings.Join(words[2:], " "))},
		{Key: "words", Value: words}, {Key: "last_notice_at", Value: bson.DateTime(1_704_067_200_000 + 1000*int64(number))},
		{Key: "resolved", Value: false}, {Key: "comments_count", Value: 0}, {Key: "notices_count", Value: 7}, {Key: "hosts", Value: hosts},
	}
}

func trackerFill(ctx context.Context, db *mongo.Database) error {
	problems := db.Collection("problems")
	if err := problems.Drop(ctx); err != nil {
		return err
	}
	if _, err := problems.Indexes().CreateMany(ctx, []mongo.IndexModel{
		{Keys: bson.D{{Key: "last_notice_at", Value: -1}}}, {Keys: bson.D{{Key: "message", Value: 1}}},
	}); err != nil {
		return err
	}
	all := make([]any, trackerProblems)
	for number := range all {
		all[number] = trackerProblem(number)
	}
	_, err := problems.InsertMany(ctx, all)
	return err
}

func trackerSearch(ctx context.Context, db *mongo.Database, _ int) error {
	any, word := bson.A{}, trackerWord(rand.IntN(trackerWords))
	for _, field := range []string{"app_name", "environment", "error_class", "message", "where"} {
		any = append(any, bson.D{{Key: field, Value: bson.D{{Key: "$regex", Value: word}, {Key: "$options", Value: "i"}}}})
	}
	filter := bson.D{{Key: "$or", Value: any}}
	problems := db.Collection("problems")
	count, err := problems.CountDocuments(ctx, filter)
	if err != nil {
		return err
	}
	page := options.Find().SetSort(bson.D{{Key: "last_notice_at", Value: -1}}).SetLimit(trackerPage)
	cursor, err := problems.Find(ctx, filter, page)
	if err != nil {
		return err
	}
	var found []bson.Raw
	if err := cursor.All(ctx, &found); err != nil {
		return err
	}
	if len(found) != int(min(count, trackerPage)) {
		return fmt.Errorf("%d found of %d", len(found), count)
	}
	return nil
}

func tracker() []workload {
	return []workload{{"error tracker: count and first page of a search", 300, trackerFill, trackerSearch}}
}
