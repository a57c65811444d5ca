// Increments counters with the Node.js driver: `callers.js URI CLIENTS`. tests/crash/retries describes input and output.
import { MongoClient } from 'mongodb';

const [uri, clients] = process.argv.slice(2);
const client = new MongoClient(uri, { serverSelectionTimeoutMS: 60_000 });
const halves = ['a', 'b'].map((name) => client.db('crash').collection(name));
const increment = { $inc: { n: 1 } };
const calls = {
  transaction: (_id) =>
    client.withSession((session) =>
      session.withTransaction(async () => {
        for (const half of halves) await half.updateOne({ _id }, increment, { session });
      }),
    ),
  update: (_id) => halves[0].updateOne({ _id }, increment),
  modify: (_id) => halves[0].findOneAndUpdate({ _id }, increment),
};

let stops = false;
const counts = {};

async function count(kind, id) {
  counts[id] = [0, 0];
  while (!stops) {
    try {
      await calls[kind](id);
      counts[id][0] += 1;
    } catch (error) {
      // A failed write to a socket is not an error of the driver's classes.
      counts[id][1] += 1;
      console.error(`${id}: ${error}`);
    }
  }
}

const callers = Object.keys(calls).flatMap((kind) =>
  Array.from({ length: Number(clients) }, (_, number) => [kind, `node-${kind}-${number}`]),
);
for (const [, _id] of callers) for (const half of halves) await half.insertOne({ _id, n: 0 });
console.log('ready');
process.stdin.on('end', () => (stops = true)).resume();
await Promise.all(callers.map(([kind, id]) => count(kind, id)));
console.log(JSON.stringify(counts));
await client.close();
