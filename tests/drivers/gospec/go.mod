module vellum/tests/drivers/gospec

go 1.25.0

require go.mongodb.org/mongo-driver v1.17.4
