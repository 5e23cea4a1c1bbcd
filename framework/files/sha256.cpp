#include "steelyard/framework/files/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include "steelyard/framework/files/files.h"

namespace steelyard {
namespace {

void require(int status) {
  if (status != 1) throw std::runtime_error("[sha256] OpenSSL refused SHA-256");
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  require(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;

void Sha256::update(const void* data, std::size_t bytes) {
  require(EVP_DigestUpdate(context_.get(), data, bytes));
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned int size = 0;
  require(EVP_DigestFinal_ex(context_.get(), digest.data(), &size));
  require(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr));
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}

std::string sha256_of(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string sha256_of_file(const std::filesystem::path& path) {
  const InputFile file(path);
  Sha256 hash;
  std::vector<char> piece(std::min<std::uint64_t>(file.size(), 1 << 20));
  for (std::uint64_t offset = 0; offset < file.size(); offset += piece.size()) {
    const std::uint64_t bytes = std::min<std::uint64_t>(piece.size(), file.size() - offset);
    file.read(offset, piece.data(), bytes);
    hash.update(piece.data(), bytes);
  }
  return hash.hex();
}

}  // namespace steelyard
