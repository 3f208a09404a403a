// Runs several command lines of the built program in this one process, which costs less than a process for
// each. Reads them as JSON from standard input and prints how each of them ended.
import { json } from 'node:stream/consumers';
import { z } from 'zod';

const url = new URL('../../../dist/cli/main.js', import.meta.url).href;
const cli: { main(args: readonly string[]): Promise<number> } = await import(url);
const streams = { stdout: process.stdout, stderr: process.stderr };
const write = process.stdout.write.bind(process.stdout);

const ends: unknown[] = [];
for (const args of z.array(z.array(z.string())).parse(await json(process.stdin))) {
  const printed = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const) {
    streams[name].write = (text: unknown, ...rest: unknown[]) => {
      printed[name] += String(text);
      const [written] = rest.slice(-1);
      if (typeof written === 'function') written();
      return true;
    };
  }
  ends.push({ args, code: await cli.main(args), ...printed });
}
write(JSON.stringify(ends));
