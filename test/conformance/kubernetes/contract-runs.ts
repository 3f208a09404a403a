// Pods: how they are placed, run, end and are removed, and their logs.
import { describe, expect, it } from 'vitest';
import { REGISTRY_LOGIN } from '../../support/kubernetes/kubelet/images.ts';
import type { ClusterStage } from './contract.ts';

const FOREVER = 'echo up; exec sleep 1000';

export function describeRuns(stage: ClusterStage): void {
  const state = (part: object) => ({ status: { containerStatuses: [{ state: part }] } });
  const terminated = (part: object) => state({ terminated: part });

  const untilWaiting = (name: string, reason: string) =>
    stage.untilPod(name, ({ status }) => JSON.stringify(status).includes(`"reason":"${reason}"`));

  describe('a pod', () => {
    it('runs its command and shows its exit code', async () => {
      await stage.runPod('good', 'echo done');
      const good = await stage.untilPhase('good', 'Succeeded');
      expect(good).toMatchObject(terminated({ exitCode: 0, reason: 'Completed' }));
      expect(good.spec).toMatchObject({ nodeName: 'cpu-node' });
      await stage.runPod('bad', 'kill -SEGV $$$$');
      const bad = await stage.untilPhase('bad', 'Failed');
      expect(bad).toMatchObject(terminated({ exitCode: 139, reason: 'Error' }));
      expect(await stage.untilLogged('good', 'done')).toBe('done\n');
    });

    it('shows a missing command', async () => {
      const containers = [{ name: 'main', image: 'none', args: ['no-such-command'] }];
      await stage.runPod('odd', '', { containers });
      const reason = 'StartError';
      const odd = await stage.untilPhase('odd', 'Failed');
      expect(odd).toMatchObject(terminated({ exitCode: 128, reason }));
    });

    it('gets variables of a Secret, as soon as it exists', async () => {
      const env = [
        { name: 'PLAIN', value: 'one' },
        { name: 'HIDDEN', valueFrom: { secretKeyRef: { name: 'hidden', key: 'a' } } },
      ];
      const args = ['sh', '-c', 'echo "$$PLAIN $$HIDDEN"'];
      const containers = [{ name: 'main', image: 'none', args, env }];
      await stage.runPod('reader', '', { containers });
      await untilWaiting('reader', 'CreateContainerConfigError');
      const hidden = { metadata: { name: 'hidden' }, stringData: { a: 'two' } };
      await stage.client.create(stage.path('secrets'), hidden);
      await stage.untilPhase('reader', 'Succeeded');
      expect(await stage.untilLogged('reader', '\n')).toBe('one two\n');
    });

    it('is killed beyond its memory limit', async () => {
      const grow = 'const all = []; for (;;) all.push(Buffer.alloc(10_000_000, 1));';
      const args = [process.execPath, '-e', grow];
      const resources = { limits: { memory: '200Mi' } };
      await stage.runPod('hungry', '', {
        containers: [{ name: 'main', image: 'none', args, resources }],
      });
      const end = await stage.untilPhase('hungry', 'Failed');
      expect(end).toMatchObject(terminated({ exitCode: 137, reason: 'OOMKilled' }));
    });

    it('ends by its deadline with its own exit code', async () => {
      const script = 'trap "exit 7" TERM; echo up; while :; do sleep 0.05; done';
      await stage.runPod('timed', script);
      await stage.untilLogged('timed', 'up');
      const path = stage.path('pods', 'timed');
      await stage.client.patch(path, { spec: { activeDeadlineSeconds: 1 } });
      const end = await stage.untilPhase('timed', 'Failed');
      expect(end).toMatchObject({ status: { reason: 'DeadlineExceeded' } });
      expect(end).toMatchObject(terminated({ exitCode: 7 }));
      expect(await stage.untilLogged('timed', 'up')).toBe('up\n');
    });

    it('is removed with its grace, and sooner by a second removal', async () => {
      await stage.runPod('deaf', 'trap "" TERM; echo up; while :; do sleep 0.05; done');
      await stage.untilLogged('deaf', 'up');
      const path = stage.path('pods', 'deaf');
      const first = await stage.client.remove(path, { gracePeriodSeconds: 600 });
      expect(first.deletionGracePeriodSeconds).toBe(600);
      expect(await stage.client.get(path)).toMatchObject({ status: { phase: 'Running' } });
      await stage.client.remove(path, { gracePeriodSeconds: 1 });
      await stage.untilGone(path);
    });

    it('goes at once when it has ended', async () => {
      await stage.runPod('over', 'exit 0');
      await stage.untilPhase('over', 'Succeeded');
      await stage.client.remove(stage.path('pods', 'over'));
      expect(await stage.client.find(stage.path('pods', 'over'))).toBeUndefined();
    });

    it('shows an image that is missing', async () => {
      const containers = [{ name: 'main', image: 'registry.test/a/b:missing' }];
      const { metadata } = await stage.runPod('lost', '', { containers });
      await untilWaiting('lost', 'ImagePullBackOff');
      expect((await stage.untilEvent(metadata.uid, 'Failed'))['message']).toContain('not found');
      await stage.client.remove(stage.path('pods', 'lost'), { gracePeriodSeconds: 1 });
      await stage.untilGone(stage.path('pods', 'lost'));
    });

    it('pulls a private image with a login', async () => {
      const image = 'registry.test/private/a:1';
      const auths = { 'registry.test': REGISTRY_LOGIN };
      await stage.client.create(stage.path('secrets'), {
        metadata: { name: 'login' },
        type: 'kubernetes.io/dockerconfigjson',
        stringData: { '.dockerconfigjson': JSON.stringify({ auths }) },
      });
      const containers = [{ name: 'main', image, args: ['true'] }];
      await stage.runPod('refused', '', { containers });
      await untilWaiting('refused', 'ErrImagePull');
      await stage.runPod('pulled', '', { containers, imagePullSecrets: [{ name: 'login' }] });
      await stage.untilPhase('pulled', 'Succeeded');
    });

    it('waits for a GPU of its type, and gets it when it is free', async () => {
      const part = (count: number, product = 'NVIDIA-L4') => ({
        nodeSelector: { 'nvidia.com/gpu.product': product },
        containers: [
          {
            name: 'main',
            image: 'none',
            args: ['sh', '-c', 'echo "$$NVIDIA_VISIBLE_DEVICES"; exec sleep 1000'],
            resources: { limits: { 'nvidia.com/gpu': count } },
          },
        ],
      });
      await stage.runPod('first', '', part(2));
      expect(await stage.untilLogged('first', 'GPU')).toBe('GPU-1,GPU-2\n');
      const { metadata } = await stage.runPod('second', '', part(1));
      await untilWaiting('second', 'Unschedulable');
      const event = await stage.untilEvent(metadata.uid, 'FailedScheduling');
      expect(event['message']).toContain('1 Insufficient nvidia.com/gpu');
      await stage.client.remove(stage.path('pods', 'first'), { gracePeriodSeconds: 1 });
      expect(await stage.untilLogged('second', 'GPU')).toBe('GPU-1\n');
      await stage.client.remove(stage.path('pods', 'second'), { gracePeriodSeconds: 1 });
      await stage.untilGone(stage.path('pods', 'second'));
    });

    it('keeps files in its claim, whose removal waits for the pod', async () => {
      const claim = stage.path('persistentvolumeclaims', 'data');
      const spec = {
        accessModes: ['ReadWriteOnce'],
        resources: { requests: { storage: '1Gi' } },
      };
      const volumes = [{ name: 'data', persistentVolumeClaim: { claimName: 'data' } }];
      const volumeMounts = [{ name: 'data', mountPath: '/workspace' }];
      const part = (script: string) => ({
        volumes,
        containers: [{ name: 'main', image: 'none', args: ['sh', '-c', script], volumeMounts }],
      });
      await stage.runPod('writer', '', part('echo kept > ./workspace/note'));
      await untilWaiting('writer', 'Unschedulable');
      const body = { metadata: { name: 'data' }, spec };
      await stage.client.create(stage.path('persistentvolumeclaims'), body);
      await stage.untilPhase('writer', 'Succeeded');
      await stage.runPod('reader', '', part(`cat ./workspace/note; ${FOREVER}`));
      expect(await stage.untilLogged('reader', 'up')).toBe('kept\nup\n');
      await stage.client.remove(claim);
      expect((await stage.client.get(claim)).metadata.deletionTimestamp).toBeTruthy();
      await stage.client.remove(stage.path('pods', 'reader'), { gracePeriodSeconds: 1 });
      await stage.untilGone(claim);
    });

    it('is evicted, or told that it will be disrupted', async () => {
      const { kubelet } = stage.cluster;
      await stage.runPod('evicted', FOREVER);
      await stage.untilLogged('evicted', 'up');
      kubelet.evict(stage.namespace, 'evicted');
      const evicted = await stage.untilPhase('evicted', 'Failed');
      expect(evicted).toMatchObject({ status: { reason: 'Evicted' } });
      await stage.runPod('moved', `trap : TERM; ${FOREVER.replace('exec', '')} & wait; sleep 0.3`);
      await stage.untilLogged('moved', 'up');
      await kubelet.disrupt(stage.namespace, 'moved');
      const moved = await stage.client.get(stage.path('pods', 'moved'));
      expect(JSON.stringify(moved.status)).toContain('DisruptionTarget');
      expect(moved.metadata.deletionTimestamp).toBeTruthy();
      await stage.untilGone(stage.path('pods', 'moved'));
    });
  });

  describe('the log', () => {
    it('is empty without a node, and refused while the pod waits there', async () => {
      await stage.runPod('never', 'exit 0', { nodeSelector: { is: 'nowhere' } });
      expect(await stage.client.readLog(`${stage.path('pods', 'never')}/log`)).toBe('');
      const containers = [{ name: 'main', image: 'registry.test/a/b:missing' }];
      await stage.runPod('lost', '', { containers });
      await untilWaiting('lost', 'ErrImagePull');
      const read = stage.client.readLog(`${stage.path('pods', 'lost')}/log`);
      await expect(read).rejects.toMatchObject({ code: 400 });
    });

    it('is cut to its last lines, and followed until the end', async () => {
      await stage.runPod('talker', 'echo a; echo b; echo c >&2; sleep 0.3; echo d');
      await stage.untilLogged('talker', 'c');
      const path = `${stage.path('pods', 'talker')}/log?container=main`;
      expect(await stage.client.readLog(`${path}&tailLines=2&follow=true`)).toBe('b\nc\nd\n');
      expect(await stage.client.readLog(`${path}&tailLines=1`)).toBe('d\n');
      expect(await stage.client.readLog(`${path}&limitBytes=3`)).toBe('a\nb');
    });
  });

  describe('metrics', () => {
    it('shows what a running pod uses', async () => {
      await stage.runPod('busy', 'echo up; while :; do :; done');
      await stage.untilLogged('busy', 'up');
      const path = (name: string) =>
        `/apis/metrics.k8s.io/v1beta1/namespaces/${stage.namespace}/pods/${name}`;
      const found = await stage.client.get(path('busy'));
      expect(found['containers']).toMatchObject([{ name: 'main', usage: {} }]);
      expect(JSON.stringify(found)).toMatch(/"cpu":"\d+n","memory":"[1-9]\d*Ki"/);
      await expect(stage.client.get(path('nobody'))).rejects.toMatchObject({ code: 404 });
    });
  });
}
