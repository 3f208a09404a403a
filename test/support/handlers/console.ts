// A handler for the tests of the console: streams, fails, sleeps, and makes outputs that a page must not trust.
import { setTimeout as sleep } from 'node:timers/promises';
import { type Context, defineHandler, type Job, NonRetryableError } from 'millrace';
import { z } from 'zod';

const MARKUP =
  '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>';
const SVG = `<svg xmlns="http://www.w3.org/2000/svg" onload="document.title='owned'"></svg>`;
const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

const input = z.strictObject({
  act: z.enum(['say', 'fail', 'sleep', 'hostile', 'picture', 'large', 'chunks']),
  text: z.string().default(''),
  /** Chunks, or characters. */
  count: z.int().min(0).max(20_000_000).default(3),
  /** ms, before the end or between chunks. */
  ms: z.int().min(0).default(0),
});

export default defineHandler({ input, run, config: { concurrency: 4 } });

async function* run({ input: { act, count, ms, text } }: Job<z.infer<typeof input>>, ctx: Context) {
  if (act === 'fail') throw new NonRetryableError(`this job fails: ${text}`);
  if (act === 'sleep') await sleep(ms, undefined, { signal: ctx.signal });
  if (act === 'hostile') {
    yield {
      markup: MARKUP,
      svg: `data:image/svg+xml;base64,${btoa(SVG)}`,
      page: `data:text/html,${MARKUP}`,
    };
  }
  if (act === 'picture') yield { picture: PIXEL, url: `data:image/png;base64,${PIXEL}` };
  if (act === 'large') yield 'x'.repeat(count);
  if (act === 'say' || act === 'chunks') {
    for (let n = 1; n <= count; n++) {
      if (ms > 0) await sleep(ms, undefined, { signal: ctx.signal });
      yield act === 'say' ? `${text}${n} ` : { n };
      if (n % 50 === 0) ctx.log.info({ n }, 'chunks yielded');
    }
  }
}
