// Reading ONNX files, hostile ones too.
#include "steelyard/import/onnx/onnx_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx.pb.h>

#include <bit>
#include <fstream>

#include "steelyard/framework/tensor/error.h"
#include "tests/import/onnx_support.h"
#include "tests/support/gradcheck.h"
#include "tests/support/temporary_folder.h"

namespace steelyard::imports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

class OnnxFile : public ::testing::Test {
 protected:
  OnnxFile() {
    proto_.set_ir_version(7);
    proto_.set_producer_name("test");
    onnx::OperatorSetIdProto& set = *proto_.add_opset_import();
    set.set_version(13);
    auto& graph = *proto_.mutable_graph();
    add_port(*graph.add_input(), "x");
    add_port(*graph.add_output(), "y");
    onnx::TensorProto& weight = *graph.add_initializer();
    weight.set_name("w");
    weight.set_data_type(onnx::TensorProto::FLOAT);
    weight.add_dims(2);
    weight.add_float_data(1.5F);
    weight.add_float_data(-2);
    add_node("Mul", {"x", "w"}, "y");
  }

  static void add_port(onnx::ValueInfoProto& port, const std::string& name) {
    port.set_name(name);
    auto& type = *port.mutable_type()->mutable_tensor_type();
    type.set_elem_type(onnx::TensorProto::FLOAT);
    type.mutable_shape()->add_dim()->set_dim_param("N");
    type.mutable_shape()->add_dim()->set_dim_value(2);
  }
  onnx::NodeProto& add_node(const std::string& op, const std::vector<std::string>& inputs,
                            const std::string& output) {
    onnx::NodeProto& node = *proto_.mutable_graph()->add_node();
    node.set_op_type(op);
    node.set_name("node of " + output);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(output);
    return node;
  }
  onnx::TensorProto& weight() { return *proto_.mutable_graph()->mutable_initializer(0); }

  OnnxModel read() {
    std::string bytes;
    proto_.SerializeToString(&bytes);
    return read(bytes);
  }
  OnnxModel read(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return read_onnx(path_);
  }
  // Without the file's path.
  std::string refusal() {
    const std::string message = message_of<InputError>([&] { read(); });
    const std::string begin = path_.string() + ": ";
    EXPECT_TRUE(message.starts_with(begin)) << message;
    return message.substr(std::min(begin.size(), message.size()));
  }

  onnx::ModelProto proto_;
  testing::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "model.onnx";
};

TEST_F(OnnxFile, ReadsWhatModelsHave) {
  onnx::NodeProto& node = add_node("Clip", {"y"}, "z");
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name("axes");
  attribute.set_type(onnx::AttributeProto::INTS);
  attribute.add_ints(3);
  proto_.mutable_graph()->mutable_output(0)->set_name("z");
  const OnnxModel model = read();
  EXPECT_EQ(model.opset, 13);
  EXPECT_EQ(model.producer, "test");
  EXPECT_EQ(to_string(model.inputs[0].dims), "[N, 2]");
  EXPECT_EQ(model.nodes.size(), 2U);
  EXPECT_THAT(model.nodes[1].integers("axes"), ElementsAre(3));
  EXPECT_THAT(model.initializers.at("w").reals, ElementsAre(1.5F, -2.0F));
  EXPECT_EQ(model.sha256.size(), 64U);
}

TEST_F(OnnxFile, SortsNodes) {
  proto_.mutable_graph()->mutable_node(0)->set_input(0, "a");
  add_node("Relu", {"x"}, "a");
  EXPECT_EQ(read().nodes[0].op, "Relu");
}

TEST_F(OnnxFile, ReadsEveryTypeOfNumbers) {
  const auto set_raw = [&](int type, const auto& values) {
    weight().clear_float_data();
    weight().set_data_type(type);
    weight().set_raw_data(values.data(), values.size() * sizeof(values[0]));
  };
  set_raw(onnx::TensorProto::DOUBLE, std::vector<double>{1.5, -2});
  EXPECT_THAT(read().initializers.at("w").reals, ElementsAre(1.5F, -2.0F));
  set_raw(onnx::TensorProto::FLOAT16, std::vector<std::uint16_t>{0x3E00, 0xC000});
  EXPECT_THAT(read().initializers.at("w").reals, ElementsAre(1.5F, -2.0F));
  set_raw(onnx::TensorProto::BFLOAT16, std::vector<std::uint16_t>{0x3FC0, 0xC000});
  EXPECT_THAT(read().initializers.at("w").reals, ElementsAre(1.5F, -2.0F));
  set_raw(onnx::TensorProto::INT64, std::vector<std::int64_t>{std::int64_t{1} << 40, -2});
  EXPECT_THAT(read().initializers.at("w").integers,
              ElementsAre(Extent{std::int64_t{1} << 40}, Extent{-2}));
  set_raw(onnx::TensorProto::INT8, std::vector<std::int8_t>{-3, 4});
  EXPECT_THAT(read().initializers.at("w").integers, ElementsAre(Extent{-3}, Extent{4}));
  set_raw(onnx::TensorProto::UINT64, std::vector<std::uint64_t>{3, std::uint64_t{1} << 40});
  EXPECT_THAT(read().initializers.at("w").integers,
              ElementsAre(Extent{3}, Extent{std::int64_t{1} << 40}));
  weight().clear_raw_data();
  weight().set_data_type(onnx::TensorProto::FLOAT16);
  weight().add_int32_data(0x3E00);
  weight().add_int32_data(0xC000);
  EXPECT_THAT(read().initializers.at("w").reals, ElementsAre(1.5F, -2.0F));
}

TEST_F(OnnxFile, RefusesWhatIsNoModel) {
  for (const std::string& bytes :
       {std::string(), std::string("PK\3\4zip"), std::string(300, '\xff')}) {
    EXPECT_THAT(message_of<InputError>([&] { read(bytes); }), HasSubstr(path_.string() + ": "));
  }
  std::string whole;
  proto_.SerializeToString(&whole);
  for (std::size_t n = 1; n + 1 < whole.size(); n += 3) {  // truncated
    try {
      read(whole.substr(0, n));
      ADD_FAILURE() << n << " bytes";
    } catch (const InputError&) {
    }
  }
}

TEST_F(OnnxFile, RefusesAnotherOperationSet) {
  proto_.mutable_opset_import(0)->set_version(6);
  EXPECT_EQ(refusal(), "expected an operation set (opset) from 7 to 23, got 6");
  proto_.mutable_opset_import(0)->set_version(24);
  EXPECT_EQ(refusal(), "expected an operation set (opset) from 7 to 23, got 24");
  proto_.mutable_opset_import(0)->set_version(23);
  EXPECT_EQ(read(proto_.SerializeAsString()).opset, 23);
  proto_.mutable_opset_import(0)->set_domain("com.example");
  EXPECT_EQ(refusal(), "names no operation set of ONNX (opset_import)");
}

TEST_F(OnnxFile, RefusesGraphsThatDoNotHoldTogether) {
  proto_.mutable_graph()->mutable_node(0)->set_input(0, "nothing");
  EXPECT_EQ(refusal(), "node 'node of y' (Mul) reads 'nothing', which nothing makes");
  proto_.mutable_graph()->mutable_node(0)->set_input(0, "y");
  EXPECT_EQ(refusal(), "node 'node of y' (Mul) waits for its own output: the graph has a cycle");
  // Others wait for it too.
  proto_.mutable_graph()->mutable_node(0)->set_input(0, "z");
  add_node("Add", {"x", "q"}, "p");
  add_node("Relu", {"p"}, "q");
  add_node("Relu", {"q"}, "z");
  EXPECT_EQ(refusal(), "node 'node of q' (Relu) waits for its own output: the graph has a cycle");
  proto_.mutable_graph()->mutable_node()->DeleteSubrange(1, 3);
  proto_.mutable_graph()->mutable_node(0)->set_input(0, "x");
  onnx::NodeProto& twice = add_node("Relu", {"x"}, "y");
  EXPECT_EQ(refusal(), "node 'node of y' (Relu): the value 'y' is made by another node already");
  twice.set_output(0, "w");
  EXPECT_EQ(refusal(), "node 'node of y' (Relu): the value 'w' is an initializer already");
  twice.set_output(0, "x");
  EXPECT_EQ(refusal(), "node 'node of y' (Relu): the value 'x' is an input of the graph already");
  proto_.mutable_graph()->mutable_node()->RemoveLast();
  proto_.mutable_graph()->mutable_output(0)->set_name("z");
  EXPECT_EQ(refusal(), "the output 'z' is made by no node");
  proto_.mutable_graph()->clear_output();
  EXPECT_EQ(refusal(), "the graph has no output");
  weight().clear_name();
  EXPECT_EQ(refusal(), "an initializer has no name");
  proto_.clear_graph();
  EXPECT_EQ(refusal(), "holds no graph");
}

// Nobody reads what they compute.
TEST_F(OnnxFile, LeavesOutNodesWithoutOutputs) {
  for (const std::string op : {"Identity", "Dropout", "Transpose", "Gather", "Slice", "Split"}) {
    add_node(op, {"x"}, "").clear_output();
    add_node(op, {"y"}, "");
  }
  const OnnxModel model = read();
  EXPECT_EQ(model.nodes.size(), 1U);
  EXPECT_EQ(translate(model, {2}).graph.nodes.size(), 1U);
}

TEST_F(OnnxFile, RefusesAttributesThatAreNotWhatTheySay) {
  onnx::NodeProto& node = add_node("Softmax", {"y"}, "z");
  onnx::AttributeProto& axis = *node.add_attribute();
  axis.set_name("axis");
  axis.set_type(onnx::AttributeProto::FLOAT);
  axis.set_f(1);
  EXPECT_EQ(refusal(),
            "node 'node of z' (Softmax): attribute 'axis': expected the type int, got float");
  axis.set_type(onnx::AttributeProto::UNDEFINED);
  EXPECT_EQ(refusal(),
            "node 'node of z' (Softmax): attribute 'axis': expected the type int, got undefined");
  axis.set_type(onnx::AttributeProto::INT);
  axis.set_i(1);
  EXPECT_EQ(read().nodes[1].integer("axis", -1), 1);
  *node.add_attribute() = axis;
  EXPECT_EQ(refusal(), "node 'node of z' (Softmax): attribute 'axis' is there twice");
  node.set_domain("com.example");
  node.mutable_attribute()->RemoveLast();
  node.mutable_attribute(0)->set_type(onnx::AttributeProto::FLOAT);
  EXPECT_EQ(read().nodes[1].op, "Softmax");
}

TEST_F(OnnxFile, RefusesConstantsThatAreNotWhatTheySay) {
  onnx::NodeProto& node = add_node("Constant", {}, "c");
  onnx::AttributeProto& value = *node.add_attribute();
  value.set_type(onnx::AttributeProto::INT);
  for (const auto& [name, type] :
       {std::pair("value_float", "float"), std::pair("value_ints", "ints"),
        std::pair("value_floats", "floats")}) {
    value.set_name(name);
    EXPECT_EQ(refusal(), "node 'node of c' (Constant): attribute '" + std::string(name) +
                             "': expected the type " + type + ", got int");
  }
  value.set_name("value_int");
  EXPECT_EQ(read().nodes[1].integer("value_int", -1), 0);
}

// Nodes of that domain are made here, from weights whose shapes were checked.
TEST_F(OnnxFile, RefusesOperationsOfTheDomainThatIsItsOwn) {
  proto_.mutable_graph()->mutable_node(0)->set_op_type("Linear");
  proto_.mutable_graph()->mutable_node(0)->set_domain("steelyard");
  EXPECT_EQ(refusal(),
            "node 'node of y' (Linear): files have no operations of the domain 'steelyard'");
}

TEST_F(OnnxFile, RefusesTensorsThatAreNotWhatTheySay) {
  weight().add_dims(2);
  EXPECT_EQ(refusal(), "initializer 'w': expected 4 values for the shape [2, 2], got 2");
  weight().set_raw_data("abc");
  EXPECT_EQ(refusal(), "initializer 'w': expected 16 bytes for the shape [2, 2], got 3");
  weight().set_dims(0, std::int64_t{1} << 62);
  EXPECT_THAT(refusal(), HasSubstr("initializer 'w': expected a shape of at most"));
  weight().set_dims(0, 0);
  weight().set_dims(1, std::int64_t{1} << 62);
  EXPECT_THAT(refusal(), HasSubstr("initializer 'w': expected a shape of at most"));
  weight().set_dims(1, 2);
  weight().set_dims(0, -1);
  EXPECT_THAT(refusal(), HasSubstr("got [-1, 2]"));
  weight().set_dims(0, 2);
  weight().set_data_type(onnx::TensorProto::UINT64);
  const std::uint64_t large[] = {std::uint64_t{1} << 63, 1, 1, 1};
  weight().set_raw_data(large, sizeof large);
  EXPECT_EQ(refusal(),
            "initializer 'w': expected whole numbers of 63 bits, got 9223372036854775808");
}

// What reads such a tensor may be cut off, or unused.
TEST_F(OnnxFile, RefusesTensorsOfOtherTypesWhereTheyAreRead) {
  for (const auto& [type, name] :
       {std::pair<int, std::string>(onnx::TensorProto::STRING, "string"), {77, "number 77"}}) {
    weight().set_data_type(type);
    proto_.mutable_graph()->mutable_node(0)->set_input(1, "w");
    EXPECT_EQ(
        message_of<InputError>([&] { translate(read(), {2}); }),
        path_.string() +
            ": 1 node cannot be imported: node of y (Mul): it reads 'w': expected a tensor of "
            "numbers or booleans, got type " +
            name);
    proto_.mutable_graph()->mutable_node(0)->set_input(1, "x");
    EXPECT_EQ(translate(read(), {2}).graph.nodes.size(), 1U);
  }
  onnx::AttributeProto& value = *add_node("Constant", {}, "text").add_attribute();
  value.set_name("value");
  value.set_type(onnx::AttributeProto::TENSOR);
  *value.mutable_t() = weight();
  EXPECT_EQ(translate(read(), {2}).graph.nodes.size(), 1U);
  proto_.mutable_graph()->mutable_node(0)->set_input(1, "text");
  EXPECT_THAT(message_of<InputError>([&] { translate(read(), {2}); }),
              HasSubstr("node of text (Constant): its value is of an unsupported kind"));
}

TEST_F(OnnxFile, ReadsExternalDataOfItsFolderOnly) {
  const std::vector<float> values{0, 1.5F, -2};
  std::ofstream(folder_.path() / "weights.bin", std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()), 12);
  weight().clear_float_data();
  weight().set_data_location(onnx::TensorProto::EXTERNAL);
  const auto set = [&](const std::string& location, const std::string& offset,
                       const std::string& length) {
    weight().clear_external_data();
    for (const auto& [key, value] : {std::pair("location", location), std::pair("offset", offset),
                                     std::pair("length", length)}) {
      onnx::StringStringEntryProto& entry = *weight().add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
  };
  set("weights.bin", "4", "8");
  EXPECT_THAT(read().initializers.at("w").reals, ElementsAre(1.5F, -2.0F));
  set("weights.bin", "8", "8");
  EXPECT_THAT(refusal(), HasSubstr("'weights.bin' has 12 bytes, expected 8 from byte 8"));
  set("weights.bin", "-4", "8");
  EXPECT_THAT(refusal(), HasSubstr("offset: expected a whole number, got '-4'"));
  for (const char* outside : {"../weights.bin", "/etc/passwd", "a/../../b", ""}) {
    set(outside, "0", "8");
    EXPECT_THAT(refusal(), HasSubstr("expected a file in the model's folder, got")) << outside;
  }
  std::filesystem::create_symlink("/etc", folder_.path() / "link");
  set("link/passwd", "0", "8");
  EXPECT_THAT(refusal(), HasSubstr("expected a file in the model's folder, got 'link/passwd'"));
}

}  // namespace
}  // namespace steelyard::imports
