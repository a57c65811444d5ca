// Mongoose: models are initialised once, and their indexes survive every reset.
const mongoose = require("mongoose");

const database = `mongoose_${process.env.JEST_WORKER_ID}`;
const Person = mongoose.model("Person", new mongoose.Schema({ name: { type: String, unique: true, required: true } }));

beforeAll(async () => {
  await mongoose.connect(process.env.MONGO_URL, { dbName: database });
  await Person.init();
});
beforeEach(() => mongoose.connection.getClient().db("admin").command({ resetDatabase: database }));
afterAll(() => mongoose.disconnect());

test.each(["one", "another"])("%s test sees no people, and the unique index", async () => {
  expect(await Person.countDocuments()).toBe(0);
  await Person.create({ name: "Ada" });
  await expect(Person.create({ name: "Ada" })).rejects.toMatchObject({ code: 11000 });
  await expect(Person.create({})).rejects.toThrow(/name.*required/);
});
