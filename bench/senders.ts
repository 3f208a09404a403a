// A process whose clients call one URL, each again and again, until the parent disconnects. It sends a message with the first answer. In a process of its own, it
// does not hold up the event loop of the client that is measured.
import { Agent, request } from 'undici';

const [url = '', authorization = '', clients = '', bytes = ''] = process.argv.slice(2);
const text = Number(bytes) === 0 ? 'hello' : 'x'.repeat(Number(bytes) - 24);
const body = Buffer.from(JSON.stringify({ input: { text } }));
const dispatcher = new Agent({ connections: Number(clients), pipelining: 1 });
let isOver = false;
let hasAnswer = false;

async function client(): Promise<void> {
  while (!isOver) {
    const headers = { authorization, 'content-type': 'application/json' };
    const answer = await request(url, { method: 'POST', headers, dispatcher, body });
    await answer.body.dump({ limit: 2 * body.length });
    if (!hasAnswer) process.send?.('answered');
    hasAnswer = true;
  }
}

process.once('disconnect', () => {
  isOver = true;
});
await Promise.all(Array.from({ length: Number(clients) }, client));
await dispatcher.close();
