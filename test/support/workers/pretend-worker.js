// A process that keeps to what a supervisor expects of a worker, and otherwise does what the words in
// PRETEND say: `fail` before it is ready, `fail-final`, `nobody` says nothing, `stay` deaf to SIGTERM, `late`
// ended by a second one after it said that it exits,
// `deaf` to what it is told, `dirty` leaves something undelivered, `parent` has a process of its own;
// plain, it gets ready and leaves when told to.
import { spawn } from 'node:child_process';

const words = (process.env.PRETEND ?? '').split(' ');
const incarnation = Number(process.argv[3] ?? 1);
const workerId = process.argv[2] ?? 'pretended';

const health = {
  ready: true,
  state: 'ready',
  slots: 2,
  running: 1,
  ended: 0,
  stuck: 0,
  outboxDepth: 0,
};
// A parent that is gone already is nobody to tell.
process.on('error', () => {});
if (words.includes('nobody')) await new Promise(() => setInterval(() => {}, 1_000));
if (words.includes('parent')) spawn('sleep', ['300'], { stdio: 'ignore' });
process.send({ type: 'identity', workerId, incarnation });
process.on('message', (message) => {
  if (message.type === 'ask') {
    process.send({ type: 'answer', number: message.number, health, metrics: undefined });
  }
  if (words.includes('deaf')) return;
  if (message.type === 'release') process.exit(0);
  if (message.type === 'recycle') process.exit(0);
});
process.on('SIGTERM', () => {
  if (words.includes('stay')) return;
  if (words.includes('late')) {
    process.send({ type: 'exiting', code: 0 }, () => {
      process.removeAllListeners('SIGTERM');
      process.kill(process.pid, 'SIGTERM');
    });
    return;
  }
  process.exit(words.includes('dirty') ? 1 : 0);
});
process.on('SIGUSR2', () => process.send({ type: 'dismissed' }, () => process.exit(0)));
if (words.includes('fail') || words.includes('fail-final')) {
  const failed = { type: 'failed', reason: 'no model', isFinal: words.includes('fail-final') };
  process.send(failed, () => process.exit(1));
} else {
  process.send({ type: 'ready' });
  process.send({ type: 'beat', running: 1, ended: 3 });
}
