# Tests of files, checkpoints and data; included by this folder's CMakeLists.txt.
add_executable(save_loop ${PROJECT_SOURCE_DIR}/tests/support/save_loop.cpp)
target_link_libraries(save_loop PRIVATE steelyard::framework steelyard_warnings)

steelyard_add_tests(framework_files_test
  SOURCES files/checkpoint_kill_test.cpp files/checkpoint_test.cpp cpus_test.cpp files/event_file_test.cpp files/files_test.cpp
          files/gguf_rewrite_test.cpp files/gguf_test.cpp
          files/json_integer_test.cpp files/json_problem_test.cpp files/safetensors_folder_test.cpp files/safetensors_test.cpp files/torch_file_test.cpp
  DEPENDS steelyard::framework)
target_compile_definitions(framework_files_test PRIVATE
  STEELYARD_SAVE_LOOP="$<TARGET_FILE:save_loop>")
add_dependencies(framework_files_test save_loop)

steelyard_add_tests(framework_data_test
  SOURCES data/augmentations_test.cpp data/cifar_test.cpp data/data_loader_test.cpp data/dataset_test.cpp files/file_kind_test.cpp data/idx_test.cpp
          data/larger_than_memory_test.cpp data/stratified_split_test.cpp data/arrays_test.cpp data/tables_test.cpp data/targets_test.cpp data/tokens_test.cpp data/unlabelled_test.cpp files/zip_test.cpp
          $<$<BOOL:${STEELYARD_HAVE_IMAGES}>:data/image_folder_test.cpp>
          $<$<BOOL:${STEELYARD_HAVE_IMAGES}>:data/unlabelled_images_test.cpp>
          $<$<BOOL:${STEELYARD_HAVE_IMAGES}>:data/images_test.cpp> $<$<BOOL:${STEELYARD_HAVE_IMAGES}>:data/shards_test.cpp>
  DEPENDS steelyard::framework ZLIB::ZLIB
          $<$<BOOL:${STEELYARD_HAVE_IMAGES}>:JPEG::JPEG> $<$<BOOL:${STEELYARD_HAVE_IMAGES}>:WebP::webp>
  LABELS quick)
