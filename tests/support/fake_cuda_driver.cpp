// libcuda.so.1 without a GPU: says the CUDA version of FAKE_DRIVER_VERSION (13000 for 13.0) and
// answers every call with the error of FAKE_DRIVER_ERROR, a number of CUresult.
#include <cstdlib>
#include <cstring>

namespace {

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

int fail() { return number("FAKE_DRIVER_ERROR", 100); }

}  // namespace

extern "C" {

int cuDriverGetVersion(int* version) {
  *version = number("FAKE_DRIVER_VERSION", 99000);
  return 0;
}

int cuInit(unsigned /*flags*/) { return fail(); }

int cuGetProcAddress_v2(const char* name, void** function, int /*version*/,
                        unsigned long long /*flags*/, int* status) {
  if (status != nullptr) *status = 0;
  if (std::strcmp(name, "cuDriverGetVersion") == 0) {
    *function = reinterpret_cast<void*>(&cuDriverGetVersion);
  } else if (std::strcmp(name, "cuGetProcAddress") == 0) {
    *function = reinterpret_cast<void*>(&cuGetProcAddress_v2);
  } else {
    *function = reinterpret_cast<void*>(&fail);
  }
  return 0;
}

}  // extern "C"
