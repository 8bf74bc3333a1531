// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 30
// Proves that every device and cluster that comes with the library can be read, that measured links take the place of the
// device's figures, and that a bad description is refused with its file, line, field, value and range.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trireme/base/file.h"
#include "trireme/plan/device.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static size_t each(const char *folder, void (*check)(const char *path)) {
  char path[1024];
  size_t n = 0;
  snprintf(path, sizeof path, "%s/%s", getenv("TRIREME_PRESETS"), folder);
  DIR *stream = opendir(path);
  assert_non_null(stream);
  for (struct dirent *entry; (entry = readdir(stream));) {
    char file[1400];
    if (entry->d_name[0] == '.') continue;
    snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
    check(file);
    n++;
  }
  closedir(stream);
  return n;
}

static void check_device(const char *path) {
  tr_device d;
  if (tr_device_load(path, &d) < 0) fail_msg("%s", tr_status_text());
  assert_true(d.peak_bf16 > 0 && d.memory_gib > 0 && d.fit.matmul > 0 && strlen(d.source_peak) > 0);
  tr_device_unload(&d);
}

static void check_cluster(const char *path) {
  tr_cluster c;
  if (tr_cluster_load(path, &c) < 0) fail_msg("%s", tr_status_text());
  assert_true(c.hosts > 0 && c.domain > 0 && c.network_gbit > 0);
  tr_cluster_unload(&c);
}

static void presets(void **state) {
  (void)state;
  assert_true(each("devices", check_device) >= 25);
  assert_true(each("clusters", check_cluster) >= 5);
  tr_device d;
  assert_int_equal(tr_device_load("H100-SXM-80", &d), TR_OK);
  assert_true(d.peak_bf16 == 989 && d.memory_gbs == 3350 && d.link_domain == 8);
  tr_device_unload(&d);
  assert_int_equal(tr_device_load("h100-sxm-81", &d), TR_ERR_CONFIG);
  assert_non_null(strstr(tr_status_text(), "did you mean 'h100-sxm-80'"));
}

// What a description gives itself stands beside what it takes from another.
static void like_another(void **state) {
  (void)state;
  tr_device own, like;
  assert_int_equal(tr_device_load("h800-sxm-80", &own), TR_OK);
  assert_int_equal(tr_device_load("h100-sxm-80", &like), TR_OK);
  assert_true(own.fit.link == 0.8 && own.fit.matmul == like.fit.matmul && own.fit.p90 == like.fit.p90);
  assert_true(own.link_share == 0.15);
  tr_device_unload(&own);
  tr_device_unload(&like);
}

static const char good[] =
    "name: x\npeak:\n  bf16: 100\n  source: s\nmemory:\n  size: 80\n  bandwidth: 2000\n  source: s\n"
    "link:\n  bandwidth: 300\n  devices: 8\n  source: s\nnetwork:\n  bandwidth: 200\n  source: s\n";

static void refuses(const char *from, const char *to, const char *says) {
  char text[1024], path[] = "/tmp/trireme-device-XXXXXX";
  const char *at = strstr(good, from);
  assert_non_null(at);
  int n = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(tr_file_write_all(fd, text, (size_t)n, path), TR_OK);
  close(fd);
  tr_device d;
  tr_status status = tr_device_load(path, &d);
  unlink(path);
  if (!*says) {
    assert_int_equal(status, TR_OK);
    tr_device_unload(&d);
    return;
  }
  assert_true(status < 0);
  if (!strstr(tr_status_text(), says)) fail_msg("'%s' does not say '%s'", tr_status_text(), says);
}

static void bad(void **state) {
  (void)state;
  refuses("name: x", "name: x", "");
  refuses("  bf16: 100\n", "", "peak.bf16 is missing");
  refuses("bf16: 100", "bf16: -3", "-3");
  refuses("bf16: 100", "bf16: fast", ":3:");
  refuses("bf16: 100", "bf16: 0", ":3:9: peak.bf16: 0 says nothing");
  refuses("size: 80", "size: 1e9", "GiB");
  refuses("devices: 8", "devices: 0", "devices");
  refuses("name: x", "name: x\nfit:\n  matmul: 0", "a number from 0.01 to 1"); // without an empty unit behind it
  assert_null(strstr(tr_status_text(), "()"));
  refuses("bandwidth: 200", "bandwith: 200", "did you mean");
  refuses("name: x", "name: x\nlike: nothing-like-this", "nothing-like-this");
}

// ---- measured links

static tr_status load_links(const char *links, tr_cluster *out) {
  char text[2048], path[] = "/tmp/trireme-cluster-XXXXXX";
  int n =
      snprintf(text, sizeof text, "name: x\ndevice: h100-sxm-80\nhosts: 2\nhost_devices: 8\nsource: s\n%s", links);
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(tr_file_write_all(fd, text, (size_t)n, path), TR_OK);
  close(fd);
  tr_status status = tr_cluster_load(path, out);
  unlink(path);
  return status;
}

#define HOST "links:\n  - tier: host\n    latency: 2e-6\n    bandwidth: 6e9\n    source: s\n"

static void measured_links(void **state) {
  (void)state;
  static const char *const bad_links[][2] = {
      {"links: 3\n", "a list with an entry per tier"},
      {"links:\n  - 3\n", ":7:"},
      {"links:\n  - tier: host\n    latency: 2e-6\n    source: s\n", "no bandwidth"},
      {"links:\n  - tier: host\n    latency: fast\n    bandwidth: 6e9\n    source: s\n", "latency is 'fast'"},
      {"links:\n  - tier: host\n    latency: 2\n    bandwidth: 6e9\n    source: s\n", "1e-09 to 1 s"},
      {"links:\n  - tier: host\n    latency: 2e-6\n    bandwidth: 6\n    source: s\n", "bytes/s"},
      {"links:\n  - tier: host\n    latency: 2e-6\n    bandwidth: 6e9\n    adding: no\n    source: s\n",
       "adding is 'no'"},
      {"links:\n  - tier: host\n    latency: 2e-6\n    bandwidth: 6e9\n", "no source"},
      {"links:\n  - tier: rack\n    latency: 2e-6\n    bandwidth: 6e9\n    source: s\n", "host or network"},
      {"links:\n  - tier: host\n    latncy: 2e-6\n    bandwidth: 6e9\n    source: s\n", "did you mean 'latency'"},
      {HOST "  - tier: host\n    latency: 2e-6\n    bandwidth: 6e9\n    source: s\n", "told twice"},
      {"link:\n  - tier: host\n", "unknown option \"link\""}};
  tr_cluster plain, c;
  assert_int_equal(load_links("", &plain), TR_OK);
  if (load_links(HOST, &c) < 0) fail_msg("%s", tr_status_text());
  assert_true(c.device.link_gbs == 6 && c.device.fit.link == 1 && c.device.fit.link_us == 1e6 * 2e-6);
  assert_true(c.network_gbit == plain.network_gbit && c.device.fit.network_us == plain.device.fit.network_us);
  tr_cluster_unload(&c);
  const char *both =
      HOST "  - tier: network\n    latency: 4e-5\n    bandwidth: 1e9\n    adding: 5e9\n    source: s\n";
  if (load_links(both, &c) < 0) fail_msg("%s", tr_status_text());
  assert_true(c.network_gbit == 8 && c.device.fit.network == 1 && c.device.fit.hop_us == 1e6 * 4e-5);
  tr_cluster_unload(&c);
  tr_cluster_unload(&plain);
  for (size_t i = 0; i < sizeof bad_links / sizeof *bad_links; i++) {
    assert_int_equal(load_links(bad_links[i][0], &c), TR_ERR_CONFIG);
    if (!strstr(tr_status_text(), bad_links[i][1]))
      fail_msg("'%s' does not say '%s'", tr_status_text(), bad_links[i][1]);
  }
}

int main(void) {
  setenv("TRIREME_PRESETS", TRIREME_TEST_DATA "/../../presets", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(presets), cmocka_unit_test(like_another), cmocka_unit_test(bad),
                                     cmocka_unit_test(measured_links)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
