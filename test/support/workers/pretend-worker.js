// A process that simulates a worker for supervisor tests. By default it becomes ready and exits on request.
// Words in PRETEND change that:
// - `fail`, `fail-final`: reports a failure, or a permanent one, instead of being ready
// - `nobody`: sends no message
// - `stay`: ignores SIGTERM
// - `late`: after SIGTERM, reports its exit and then dies of another SIGTERM
// - `deaf`: ignores `release` and `recycle`
// - `dirty`: exits with 1 after SIGTERM, as with undelivered outcomes
// - `parent`: has a child process
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
// Ignores errors of messages to a parent that has exited.
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
