// Where the list of mounts and the programs for quotas are.

export const MOUNTS = '/proc/self/mountinfo';
/** setquota and repquota are not on the PATH of each user. */
export const SEARCH_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
