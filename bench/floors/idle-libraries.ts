// Floor of a worker's memory: its libraries, with one idle thread.
import 'pino';
import 'undici';
import { Piscina } from 'piscina';

const pool = new Piscina({
  filename: new URL('./piscina-task.ts', import.meta.url).href,
  minThreads: 1,
  maxThreads: 1,
});
await pool.run(0);
setInterval(() => {}, 60_000);
