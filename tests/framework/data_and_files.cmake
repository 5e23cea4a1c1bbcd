# Tests of files, checkpoints and data; included by this folder's CMakeLists.txt.
add_executable(save_loop ${PROJECT_SOURCE_DIR}/tests/support/save_loop.cpp)
target_link_libraries(save_loop PRIVATE steelyard::framework steelyard_warnings)

steelyard_add_tests(framework_files_test
  SOURCES checkpoint_kill_test.cpp checkpoint_test.cpp cpus_test.cpp event_file_test.cpp files_test.cpp
          json_integer_test.cpp safetensors_test.cpp torch_file_test.cpp
  DEPENDS steelyard::framework)
target_compile_definitions(framework_files_test PRIVATE
  STEELYARD_SAVE_LOOP="$<TARGET_FILE:save_loop>")
add_dependencies(framework_files_test save_loop)

steelyard_add_tests(framework_data_test
  SOURCES augmentations_test.cpp cifar_test.cpp data_loader_test.cpp dataset_test.cpp file_kind_test.cpp idx_test.cpp
          larger_than_memory_test.cpp stratified_split_test.cpp tables_arrays_test.cpp targets_test.cpp zip_test.cpp
          $<$<BOOL:${STEELYARD_HAVE_IMAGES}>:image_folder_test.cpp>
          $<$<BOOL:${STEELYARD_HAVE_IMAGES}>:images_test.cpp> $<$<BOOL:${STEELYARD_HAVE_IMAGES}>:shards_test.cpp>
  DEPENDS steelyard::framework ZLIB::ZLIB
          $<$<BOOL:${STEELYARD_HAVE_IMAGES}>:JPEG::JPEG> $<$<BOOL:${STEELYARD_HAVE_IMAGES}>:WebP::webp>
  LABELS quick)
