// Finds the file system of a folder, and whether it limits folders.
import { describe, expect, it } from 'vitest';
import { findMount, findQuotaFault } from '../../../../src/engine/quota/mount-table.ts';

const TABLE = [
  '22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro',
  '40 22 8:1 / /data rw,noatime shared:2 master:3 - xfs /dev/sda1 rw,attr2,prjquota',
  '41 40 8:2 / /data/of\\040users rw - ext4 /dev/sdb rw,prjquota',
  '42 22 0:44 / /data2 rw - tmpfs tmpfs rw',
  '',
].join('\n');

describe('findMount', () => {
  it.each([
    ['/data/pods/volume', '/data'],
    ['/data', '/data'],
    ['/data/of users/a', '/data/of users'],
    ['/database', '/'],
    ['/data2/a', '/data2'],
  ])('finds that of %s', (path, mountPoint) => {
    expect(findMount(TABLE, path)?.mountPoint).toBe(mountPoint);
  });

  it('takes the last of two mounts on one path', () => {
    const over = '43 40 0:50 / /data rw - tmpfs tmpfs rw\n';
    expect(findMount(TABLE + over, '/data/pods')?.type).toBe('tmpfs');
  });

  it('finds none without a table', () => {
    expect(findMount('', '/data')).toBeUndefined();
  });
});

describe('findQuotaFault', () => {
  const judge = (path: string) => {
    const mount = findMount(TABLE, path);
    return mount && findQuotaFault(mount);
  };

  it('has nothing against ext4 and xfs with project quotas', () => {
    expect(judge('/data/pods')).toBeUndefined();
    expect(judge('/data/of users/a')).toBeUndefined();
  });

  it('names what is missing', () => {
    expect(judge('/home')).toBe('the file system / (ext4) is not mounted with prjquota');
    expect(judge('/data2')).toBe(
      'the file system /data2 is tmpfs; project quotas need ext4 or xfs',
    );
  });
});
