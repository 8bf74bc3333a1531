// SPDX-License-Identifier: MIT
// tier: quick
// timeout: 30
// Proves that every device and cluster that comes with the library can be read, and that a bad description is refused with
// its file, line, field, value and range.
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
  refuses("size: 80", "size: 1e9", "GiB");
  refuses("devices: 8", "devices: 0", "devices");
  refuses("bandwidth: 200", "bandwith: 200", "did you mean");
  refuses("name: x", "name: x\nlike: nothing-like-this", "nothing-like-this");
}

int main(void) {
  setenv("TRIREME_PRESETS", TRIREME_TEST_DATA "/../../presets", 0);
  const struct CMUnitTest tests[] = {cmocka_unit_test(presets), cmocka_unit_test(bad)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
