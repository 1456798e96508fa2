# The one list of what is built from what. Make includes it and meson reads it with its keyval module, so every line is
# KEY=words, with no continuation and no variable. Names without a folder are programs, one .c file each: UNIT_TESTS in
# tests/unit, EXAMPLES in docs/examples, BENCHES (all on BLIS) in tests/bench; the _SOURCES beside them are linked into each.
# PLUGINS are shared objects of one file in docs/examples; SLOW_TESTS names some UNIT_TESTS again. What begins with BLIS_ is
# left out where BLIS is not installed. tests/scripts/check_sources.sh fails when a file is missing here.
CORE_SOURCES=lib/core/base/context.c lib/core/base/dtype.c lib/core/base/error.c lib/core/base/memory.c lib/core/base/size.c lib/core/view/view.c lib/core/pattern/cover.c lib/core/pattern/pattern.c lib/core/pattern/span.c lib/core/pattern/window.c lib/core/lower/chunk.c lib/core/lower/finish.c lib/core/lower/stairs.c lib/core/lower/tiles.c lib/core/lower/ways.c lib/core/pack/pack.c lib/core/encode/bias.c lib/core/encode/codes.c lib/core/encode/decode.c lib/core/encode/encode.c lib/core/encode/hidden.c lib/core/encode/host.c lib/core/encode/mask.c lib/core/encode/repair.c lib/core/encode/score.c lib/core/encode/spoils.c lib/core/encode/values.c lib/core/state/merge.c lib/core/state/state.c lib/core/state/tree.c lib/core/oracle/check.c lib/core/oracle/check_call.c lib/core/oracle/check_masks.c lib/core/oracle/check_recipe.c lib/core/oracle/check_reference.c lib/core/oracle/check_scores.c lib/core/oracle/check_shapes.c lib/core/oracle/check_softmax.c lib/core/oracle/contract.c lib/core/oracle/gate.c lib/core/oracle/measure.c lib/core/oracle/oracle.c lib/core/oracle/plugin.c lib/core/plan/advise.c lib/core/plan/create.c lib/core/plan/cursor.c lib/core/plan/describe.c lib/core/plan/layout.c lib/core/plan/problem.c lib/core/plan/tally.c lib/core/plan/tiles.c lib/core/plan/visit.c lib/core/run/blocks.c lib/core/run/calls.c lib/core/run/execute.c lib/core/run/place.c lib/core/run/results.c lib/core/run/wave.c lib/core/run/workspace.c
BLIS_SOURCES=lib/blis/gemm.c lib/blis/oracle.c lib/blis/rows.c lib/blis/scratch.c lib/blis/slot.c
REFERENCE_SOURCES=lib/reference/direct.c lib/reference/formats.c lib/reference/reference.c
TOOL_SOURCES=tools/cmd_check.c tools/cmd_plan.c tools/cmd_run.c tools/complaint.c tools/extras.c tools/furniture.c tools/json.c tools/lens.c tools/noise.c tools/npy.c tools/npy_header.c tools/npy_write.c tools/number.c tools/options.c tools/oracle_spec.c tools/oracles.c tools/outfile.c tools/picture.c tools/pool.c tools/raster.c tools/rounding.c tools/setup.c tools/sketch.c tools/slots.c tools/svg.c tools/truth.c tools/verify.c tools/wording.c tools/workload.c
TOOL_MAIN=tools/main.c
UNIT_TESTS=test_accuracy test_accuracy_windows test_bias test_cases test_cases_kernels test_cases_lse test_cases_magnitudes test_cases_poison test_cases_positions test_cases_windows test_cover test_cover_examples test_encoding test_failures test_failures_async test_failures_memory test_guard_pages test_merge test_npy test_oracle_check test_oracle_check_honest test_oracle_contract test_oracle_gate test_plan test_plan_arguments test_plan_describe test_plan_execute test_plan_kernels test_plugin test_properties test_properties_relations test_ragged test_reference_oracle test_repeatability test_slots test_vectors test_windows
BLIS_UNIT_TESTS=test_blis_oracle test_blis_rows
SLOW_TESTS=test_accuracy test_accuracy_windows
TEST_SOURCES=tests/unit/support.c tests/unit/support_answer.c tests/unit/support_case.c tests/unit/support_context.c tests/unit/support_cover.c tests/unit/support_head.c tests/unit/support_kernels.c tests/unit/support_liar.c tests/unit/support_oracle.c tests/unit/support_slot.c tests/unit/support_tile.c
EXAMPLES=readme prefix
BLIS_EXAMPLES=demo traps
EXAMPLE_SOURCES=docs/examples/my_npu.c
PLUGINS=plugin
BENCHES=bench_overhead
BENCH_SOURCES=
