// A process that samples GPUs with the nvidia-smi in its first argument until it is killed.
import { silentLog } from '../../../src/base/log.ts';
import { GpuUsageFeed } from '../../../src/worker/gpu/gpu-usage-feed.ts';

const [, , command = ''] = process.argv;
const worker = { uuids: ['GPU-a1'], pid: process.pid, noteGpuFigures() {} };
new GpuUsageFeed({ command, workers: [worker], everyMs: 100, log: silentLog }).start();
setInterval(() => {}, 1_000);
