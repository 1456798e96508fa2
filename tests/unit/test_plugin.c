/* Kernels from shared objects: the example plugin for real, and entry points that misbehave.
 *
 * The real one is TWH_TEST_PLUGIN (a path in the environment), or build/plugin_example.so. For the others the loader is
 * compiled a second time, under other names, with a dlopen that hands out entry points of this file. */
#include "support.h"

#include <dlfcn.h>

#include "core/oracle/oracle.h"

/* ---- a loader whose shared objects are functions of this file ---- */

static twh_plugin_entry *fake_entry;
static int               fake_opened, fake_closed, fake_released, fake_released_before_close;

static void *fake_dlopen(const char *path, int mode)
{
  void *library = dlopen(strcmp(path, "fake") == 0 ? "libm.so.6" : path, mode);
  fake_opened += library != NULL;
  return library;
}

static void *fake_dlsym(void *library, const char *name)
{
  void *symbol = NULL;
  (void)library;
  if (strcmp(name, "twh_plugin_oracle") == 0) memcpy(&symbol, &fake_entry, sizeof symbol);
  return symbol;
}

static int fake_dlclose(void *library)
{
  ++fake_closed;
  fake_released_before_close = fake_released;
  return dlclose(library);
}

#define twh_oracle_load   fake_oracle_load
#define twh__plugin_close fake_plugin_close
#define plugin_complain   fake_plugin_complain
#define plugin_register   fake_plugin_register
#define dlopen            fake_dlopen
#define dlsym             fake_dlsym
#define dlclose           fake_dlclose
static twh_status fake_oracle_load(const twh_context *context, const char *path, const char *options, twh_oracle **out,
                                   twh_error *error);
static void fake_plugin_close(void *library);
#include "core/oracle/plugin.c"
#undef twh_oracle_load
#undef twh__plugin_close
#undef dlopen
#undef dlsym
#undef dlclose

/* and one of a library that was built without plugins */
#define TWH_NO_PLUGINS
#define twh_oracle_load   none_oracle_load
#define twh__plugin_close none_plugin_close
static twh_status none_oracle_load(const twh_context *context, const char *path, const char *options, twh_oracle **out,
                                   twh_error *error);
static void none_plugin_close(void *library);
#include "core/oracle/plugin.c"
#undef twh_oracle_load
#undef twh__plugin_close

/* ---- the real one ---- */

static const char *plugin_path(void)
{
  const char *path = getenv("TWH_TEST_PLUGIN");
  return path && *path ? path : "build/plugin_example.so";
}

static void count_untrue(void *user, const char *promise, int32_t verdict, const char *detail)
{
  if (verdict == TWH_CHECK_UNTRUE) print_error("%s: %s\n", promise, detail);
  if (verdict == TWH_CHECK_HOLDS) ++*(int64_t *)user;
}

static void plugin_load_example_keeps_its_promises(void **state)
{
  static const char *const options[] = { NULL, "", "lse" };
  (void)state;
  for (int64_t i = 0; i < SUPPORT_COUNT(options); ++i) {
    twh_oracle     *oracle;
    twh_oracle_desc desc;
    twh_error       error;
    int64_t         untrue = -1, holds = 0;
    twh_error_init(&error);
    support_assert_status(twh_oracle_load(NULL, plugin_path(), options[i], &oracle, &error), TWH_OK, &error, NULL);
    twh_oracle_desc_init(&desc);
    support_assert_status(twh_oracle_get_desc(oracle, &desc, &error), TWH_OK, &error, NULL);
    assert_int_equal(desc.q_len, 64);
    assert_int_equal(desc.v_dim, 65);
    assert_int_equal(desc.flags, i == 2 ? TWH_ORACLE_LSE : 0);
    support_assert_status(twh_oracle_check(NULL, oracle, count_untrue, &holds, &untrue, &error), TWH_OK, &error, NULL);
    assert_int_equal(untrue, 0);
    assert_true(holds >= 9);
    twh_oracle_destroy(oracle); /* release is the plugin's own code: it must still be there */
  }
}

static void plugin_load_two_at_once_are_two_kernels(void **state)
{
  twh_oracle *first, *second;
  twh_error   error;
  int64_t     untrue = -1;
  (void)state;
  twh_error_init(&error);
  support_assert_status(twh_oracle_load(NULL, plugin_path(), "", &first, &error), TWH_OK, &error, NULL);
  support_assert_status(twh_oracle_load(NULL, plugin_path(), "lse", &second, &error), TWH_OK, &error, NULL);
  assert_true(first != second);
  twh_oracle_destroy(first);
  support_assert_status(twh_oracle_check(NULL, second, NULL, NULL, &untrue, &error), TWH_OK, &error, NULL);
  assert_int_equal(untrue, 0);
  twh_oracle_destroy(second);
}

static void plugin_load_unknown_option_is_the_plugins_refusal(void **state)
{
  twh_oracle *oracle = (twh_oracle *)(uintptr_t)1;
  twh_error   error;
  (void)state;
  twh_error_init(&error);
  support_assert_status(twh_oracle_load(NULL, plugin_path(), "quick", &oracle, &error), TWH_E_ORACLE, &error, "entry point");
  assert_int_equal(error.oracle_code, 1);
  assert_int_equal(error.call, -1);
  assert_null(oracle);
}

static void plugin_load_missing_file_is_named(void **state)
{
  twh_oracle *oracle = (twh_oracle *)(uintptr_t)1;
  twh_error   error;
  (void)state;
  twh_error_init(&error);
  support_assert_status(twh_oracle_load(NULL, "./there/is/no-such-plugin.so", NULL, &oracle, &error), TWH_E_PLUGIN, &error,
                        "no-such-plugin.so");
  assert_null(oracle);
  assert_int_equal(twh_oracle_load(NULL, "./there/is/no-such-plugin.so", NULL, &oracle, NULL), TWH_E_PLUGIN);
}

static void plugin_load_file_that_is_no_object_is_refused(void **state)
{
  twh_oracle *oracle;
  twh_error   error;
  (void)state;
  twh_error_init(&error);
  support_assert_status(twh_oracle_load(NULL, "/dev/null", NULL, &oracle, &error), TWH_E_PLUGIN, &error, "/dev/null");
  assert_null(oracle);
}

static void plugin_load_object_without_entry_point_is_refused(void **state)
{
  twh_oracle *oracle;
  twh_error   error;
  (void)state;
  twh_error_init(&error);
  support_assert_status(twh_oracle_load(NULL, "libm.so.6", NULL, &oracle, &error), TWH_E_PLUGIN, &error, "twh_plugin_oracle");
  assert_null(oracle);
}

static void plugin_load_null_arguments_are_refused(void **state)
{
  twh_oracle *oracle = (twh_oracle *)(uintptr_t)1;
  twh_error   error;
  (void)state;
  twh_error_init(&error);
  support_assert_status(twh_oracle_load(NULL, plugin_path(), NULL, NULL, &error), TWH_E_ARGUMENT, &error, "out is NULL");
  support_assert_status(twh_oracle_load(NULL, NULL, NULL, &oracle, &error), TWH_E_ARGUMENT, &error, "path is NULL");
  assert_null(oracle);
  support_assert_status(twh_oracle_load(NULL, "", NULL, &oracle, &error), TWH_E_ARGUMENT, &error, "path is empty");
}

static void plugin_load_without_plugins_is_unsupported(void **state)
{
  twh_oracle *oracle = (twh_oracle *)(uintptr_t)1;
  twh_error   error;
  (void)state;
  twh_error_init(&error);
  support_assert_status(none_oracle_load(NULL, plugin_path(), NULL, &oracle, &error), TWH_E_UNSUPPORTED, &error,
                        "TWH_NO_PLUGINS");
  assert_null(oracle);
  assert_int_equal(none_oracle_load(NULL, plugin_path(), NULL, NULL, NULL), TWH_E_UNSUPPORTED);
  none_plugin_close(NULL);
}

/* ---- those that misbehave ---- */

static twh_oracle_desc fake_desc;
static const char     *fake_options;

static int32_t fake_run(void *user, const twh_call *const *calls, int64_t n)
{
  (void)user;
  (void)calls;
  (void)n;
  return 0;
}

static void fake_release(void *user)
{
  assert_ptr_equal(user, &fake_desc);
  ++fake_released;
}

static void fake_describe(void)
{
  twh_oracle_desc_init(&fake_desc);
  fake_desc.slots = fake_desc.q_len = fake_desc.k_len = fake_desc.qk_dim = fake_desc.v_dim = 1;
  fake_desc.dtype = TWH_F32;
  fake_desc.mask_modes = TWH_MASK_NONE;
  fake_desc.scale = 1;
  fake_desc.run = fake_run;
  fake_desc.release = fake_release;
  fake_desc.user = &fake_desc;
}

static int32_t entry_good(const char *options, const twh_oracle_desc **desc)
{
  fake_options = options;
  fake_describe();
  *desc = &fake_desc;
  return 0;
}

static int32_t entry_refuses(const char *options, const twh_oracle_desc **desc)
{
  (void)options;
  fake_describe();
  *desc = &fake_desc; /* refused all the same: not ours to release */
  return -12345;
}

static int32_t entry_without_desc(const char *options, const twh_oracle_desc **desc)
{
  (void)options;
  (void)desc;
  return 0;
}

static int32_t entry_bad_desc(const char *options, const twh_oracle_desc **desc)
{
  (void)options;
  fake_describe();
  fake_desc.v_dim = 0;
  *desc = &fake_desc;
  return 0;
}

static int32_t entry_bad_size(const char *options, const twh_oracle_desc **desc)
{
  (void)options;
  fake_describe();
  fake_desc.struct_size = 16;
  *desc = &fake_desc;
  return 0;
}

static int32_t entry_without_release(const char *options, const twh_oracle_desc **desc)
{
  (void)options;
  fake_describe();
  fake_desc.v_dim = 0;
  fake_desc.release = NULL;
  *desc = &fake_desc;
  return 0;
}

static twh_status fake_load(twh_plugin_entry *entry, const twh_context *context, twh_oracle **oracle, twh_error *error)
{
  fake_entry = entry;
  fake_opened = fake_closed = fake_released = fake_released_before_close = 0;
  twh_error_init(error);
  return fake_oracle_load(context, "fake", NULL, oracle, error);
}

static void plugin_load_good_entry_gets_an_empty_string_for_no_options(void **state)
{
  twh_oracle *oracle;
  twh_error   error;
  (void)state;
  support_assert_status(fake_load(entry_good, NULL, &oracle, &error), TWH_OK, &error, NULL);
  assert_string_equal(fake_options, "");
  assert_int_equal(fake_opened, 1);
  assert_int_equal(fake_closed, 0);
  memset(&fake_desc, 0x5a, sizeof fake_desc); /* was copied */
  twh_oracle_destroy(oracle);
  assert_int_equal(fake_released, 1);
}

typedef struct fake_refusal {
  twh_plugin_entry *entry;
  twh_status        status;
  const char       *word;
  int               released;
} fake_refusal;

static void plugin_load_misbehaving_entries_are_refused_and_unloaded(void **state)
{
  static const fake_refusal rows[] = {
    { NULL, TWH_E_PLUGIN, "fake", 0 },
    { entry_refuses, TWH_E_ORACLE, "-12345", 0 },
    { entry_without_desc, TWH_E_PLUGIN, "no description", 0 },
    { entry_bad_desc, TWH_E_ARGUMENT, "oracle.v_dim is 0", 1 },
    { entry_bad_size, TWH_E_VERSION, "oracle.struct_size", 0 }, /* where its release would stand is unknown */
    { entry_without_release, TWH_E_ARGUMENT, "oracle.v_dim is 0", 0 },
  };
  (void)state;
  for (int64_t i = 0; i < SUPPORT_COUNT(rows); ++i) {
    twh_oracle *oracle = (twh_oracle *)(uintptr_t)1;
    twh_error   error;
    support_assert_status(fake_load(rows[i].entry, NULL, &oracle, &error), rows[i].status, &error, rows[i].word);
    assert_int_equal(error.oracle_code, rows[i].status == TWH_E_ORACLE ? -12345 : 0);
    assert_null(oracle);
    assert_int_equal(fake_opened, 1);
    assert_int_equal(fake_closed, 1);
    assert_int_equal(fake_released, rows[i].released);
    assert_int_equal(fake_released_before_close, rows[i].released);
  }
}

static void plugin_load_allocation_failure_at_every_point_releases_and_unloads(void **state)
{
  twh_status status = TWH_E_MEMORY;
  int64_t    n;
  (void)state;
  for (n = 0; n < 20 && status != TWH_OK; ++n) {
    support_memory memory;
    twh_context   *context = support_context(&memory, 0, 0);
    int64_t        live = memory.live_blocks;
    twh_oracle    *oracle;
    twh_error      error;
    memory.fail_at = memory.allocations + n;
    status = fake_load(entry_good, context, &oracle, &error);
    if (status != TWH_OK) {
      support_assert_status(status, TWH_E_MEMORY, &error, "allocate");
      assert_null(oracle);
      assert_int_equal(fake_released, 1);
      assert_int_equal(fake_closed, 1);
    }
    twh_oracle_destroy(oracle);
    assert_int_equal(memory.live_blocks, live);
    twh_context_destroy(context);
  }
  assert_int_equal(status, TWH_OK);
  assert_true(n > 1);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(plugin_load_example_keeps_its_promises),
    cmocka_unit_test(plugin_load_two_at_once_are_two_kernels),
    cmocka_unit_test(plugin_load_unknown_option_is_the_plugins_refusal),
    cmocka_unit_test(plugin_load_missing_file_is_named),
    cmocka_unit_test(plugin_load_file_that_is_no_object_is_refused),
    cmocka_unit_test(plugin_load_object_without_entry_point_is_refused),
    cmocka_unit_test(plugin_load_null_arguments_are_refused),
    cmocka_unit_test(plugin_load_without_plugins_is_unsupported),
    cmocka_unit_test(plugin_load_good_entry_gets_an_empty_string_for_no_options),
    cmocka_unit_test(plugin_load_misbehaving_entries_are_refused_and_unloaded),
    cmocka_unit_test(plugin_load_allocation_failure_at_every_point_releases_and_unloads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
